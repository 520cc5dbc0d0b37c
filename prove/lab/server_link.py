"""The link between clients and a server: a fault proxy that can also hold requests and deliver them late.

A held request is not lost, only late: its sender sees the connection break, and the server gets every byte when the
fault decides. A real network may do this with a request that was given up long ago.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from dataclasses import dataclass
from typing import Any

from tests.kit.proxy import FaultProxy, Link

_MOST = 8 << 20


@dataclass(frozen=True, kw_only=True)
class HeldRequest:
    """One complete request, as its sender wrote it."""

    data: bytes

    @property
    def path(self) -> str:
        return self.data.split(b" ", 2)[1].decode()

    @property
    def body(self) -> Any:
        return json.loads(self.data.partition(b"\r\n\r\n")[2])

    def deliver(self, port: int, *, within: float = 10.0) -> tuple[int, Any]:
        """Deliver the request now, over a new connection.

        Return the status and body of the response; 0 if there was none.
        """
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=within) as link:
                link.sendall(self.data)
                return _answer(link)
        except OSError:
            return 0, None


def _answer(link: socket.socket) -> tuple[int, Any]:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = link.recv(1 << 16)
        if not chunk:
            return 0, None
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    length = _length(data)
    while len(body) < length:
        chunk = link.recv(1 << 16)
        if not chunk:
            return 0, None
        body += chunk
    return int(head.split(b" ", 2)[1]), json.loads(body) if body else None


class ServerLink(FaultProxy):
    """A fault proxy that can also hold requests whose first line contains given bytes."""

    def __init__(self, upstream_host: str, upstream_port: int) -> None:
        super().__init__(upstream_host, upstream_port)
        self._wanted = b""
        self._left = 0
        self.hangs = False
        self._held: list[HeldRequest] = []
        self._caught = threading.Condition()

    def hold(self, count: int, matching: bytes, *, hangs: bool = False) -> None:
        """Hold the next `count` matching requests.

        Their senders see a reset, or no response at all if `hangs` is set.
        """
        with self._caught:
            self._wanted, self._left, self._held, self.hangs = matching, count, [], hangs

    def held(self, count: int, *, within: float) -> list[HeldRequest]:
        """Wait for `count` held requests, stop holding, and return them."""
        with self._caught:
            self._caught.wait_for(lambda: len(self._held) >= count, within)
        self.let_go()
        return self.caught()

    def caught(self) -> list[HeldRequest]:
        """Return the requests held so far."""
        with self._caught:
            return list(self._held)

    def let_go(self) -> None:
        """Stop holding requests."""
        with self._caught:
            self._left = 0

    def wants(self, request: bytes) -> bool:
        with self._caught:
            return self._left > 0 and self._wanted in request.split(b"\r\n", 1)[0]

    def catch(self, request: bytes) -> bool:
        """Hold a complete request. Return False if enough are held already."""
        with self._caught:
            if self._left <= 0:
                return False
            self._left -= 1
            self._held.append(HeldRequest(data=request))
            self._caught.notify_all()
            return True

    def __enter__(self) -> ServerLink:
        self.start()
        return self

    def link(self, client: asyncio.StreamWriter) -> Link:
        return _HoldingLink(self, client)


class _HoldingLink(Link):
    """A link that inspects the beginning of each request."""

    proxy: ServerLink

    async def run(self, from_client: asyncio.StreamReader) -> None:
        await super().run(_RequestFilter(self, from_client))  # type: ignore[arg-type]


class _RequestFilter:
    """A reader of the client's bytes that leaves out held requests."""

    def __init__(self, link: _HoldingLink, reader: asyncio.StreamReader) -> None:
        self._link, self._reader = link, reader

    async def read(self, count: int) -> bytes:
        chunk = await self._reader.read(count)
        proxy = self._link.proxy
        # A client sends one request at a time, so a chunk that begins like a request is one.
        if not chunk.startswith((b"POST ", b"PATCH ", b"DELETE ")) or not proxy.wants(chunk):
            return chunk
        request = await self._whole(chunk)
        if request is None or not proxy.catch(request):
            return request or chunk
        if proxy.hangs:
            # Wait until the sender gives up or ends.
            await self._reader.read(1)
        self._link.reset()
        return b""

    async def _whole(self, data: bytes) -> bytes | None:
        while b"\r\n\r\n" not in data or len(data) < data.index(b"\r\n\r\n") + 4 + _length(data):
            more = await self._reader.read(1 << 16)
            if not more or len(data) > _MOST:
                return None
            data += more
        return data


def _length(data: bytes) -> int:
    for line in data.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]:
        name, _, text = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(text)
    return 0
