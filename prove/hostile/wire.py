"""Cheap HTTP connections for a load of thousands: responses are counted, and bodies are kept only if they are small.

A client library would need more processor time than the servers that it loads.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

KEPT_BYTES = 64 << 10
"""The largest body that is kept."""
_END = b"\r\n\r\n"


class Reply:
    """A response: its status, the seconds of Retry-After, the size of its body, and the body if it is small."""

    __slots__ = ("body", "retry_after", "size", "status")

    def __init__(self, status: int, retry_after: float, size: int, body: bytes) -> None:
        self.status = status
        self.retry_after = retry_after
        self.size = size
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire(asyncio.Protocol):
    """One connection with at most one call at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.ended = asyncio.get_running_loop().create_future()
        """A future that is done when the connection is lost."""
        self._waiting: asyncio.Future[Reply | None] | None = None
        self._head = b""
        self._body = b""
        self._left = 0
        self._reply: Reply | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop have its methods, but not its class.
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if not self.ended.done():
            self.ended.set_result(None)
        self._finish(None)

    def data_received(self, data: bytes) -> None:
        if self._reply is None:
            self._head += data
            end = self._head.find(_END)
            if end < 0:
                return
            data = self._head[end + len(_END) :]
            self._reply = _parse(self._head[:end])
            self._head, self._body, self._left = b"", b"", self._reply.size
        self._left -= len(data)
        if self._reply.size <= KEPT_BYTES:
            self._body += data
        if self._left <= 0:
            reply, self._reply = self._reply, None
            reply.body = self._body
            self._finish(reply)

    def send(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    async def call(self, request: bytes) -> Reply | None:
        """Make a call. Return None if the connection ends before the response."""
        if self.transport is None:
            return None
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._waiting

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _finish(self, reply: Reply | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(reply)


async def connect(port: int, address: str = "127.0.0.1") -> Wire | None:
    """Return a connection to the server from this address; None if it cannot be made."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(5.0):
            _, wire = await loop.create_connection(Wire, "127.0.0.1", port, local_addr=(address, 0))
    except (OSError, TimeoutError):
        return None
    return wire


def make_request(
    token: str, method: str, path: str, body: object = None, *, content_type: str = "application/json"
) -> bytes:
    """Return the bytes of a request. A body that is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        f"content-type: {content_type}\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def _parse(head: bytes) -> Reply:
    lines = head.split(b"\r\n")
    named = {name.strip().lower(): text.strip() for name, _, text in (line.partition(b":") for line in lines[1:])}
    return Reply(
        int(lines[0].split(b" ", 2)[1]),
        float(named.get(b"retry-after", b"0")),
        int(named.get(b"content-length", b"0")),
        b"",
    )
