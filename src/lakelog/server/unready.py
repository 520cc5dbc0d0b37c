"""Responses of a server that is still starting: alive, and not ready.

PostgreSQL may be away for a moment when a server starts. The server waits for it, and tells so.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from lakelog.errors import Unavailable
from lakelog.server.health import VERSION
from lakelog.wire import problems, shapes

AFTER_SECONDS = 1.0
"""How long callers wait in the queue of the socket before they are answered by this module."""
_HEAD_SECONDS = 5.0
_REASON = "The server is starting and waits for PostgreSQL."


@asynccontextmanager
async def unready(listener: socket.socket, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Answer callers on the socket while the block runs, if that takes longer than `AFTER_SECONDS`."""
    answering = asyncio.create_task(_answer_all(listener, tls))
    try:
        yield
    finally:
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering


async def _answer_all(listener: socket.socket, tls: ssl.SSLContext | None) -> None:
    await asyncio.sleep(AFTER_SECONDS)
    # A copy, because closing the server closes its socket.
    server = await asyncio.start_server(_answer, sock=listener.dup(), ssl=tls)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(_response(head.split(b" ", 2)[1:2]))
            await writer.drain()
    writer.close()


def _response(path: list[bytes]) -> bytes:
    status, kind = b"503 Service Unavailable", b"application/json"
    health = shapes.Health(status="starting", durable=True, version=VERSION, warnings=[_REASON])
    body = msgspec.json.encode(health)
    if path == [b"/healthz"]:
        status = b"200 OK"
    elif path != [b"/readyz"]:
        kind, body = b"application/problem+json", msgspec.json.encode(problems.problem_of(Unavailable(_REASON)))
    fields = (b"content-type: " + kind, b"content-length: %d" % len(body), b"retry-after: 1", b"connection: close")
    return b"\r\n".join((b"HTTP/1.1 " + status, *fields, b"", body))
