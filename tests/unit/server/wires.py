"""A connection to an app without a socket: what is fed to its protocol, and what the protocol writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from lakelog.server.protocol import Protocol

DATE = (b"date", b"Tue, 03 Feb 2026 04:05:06 GMT")


class Wire:
    """The transport of one connection, and its protocol."""

    def __init__(self, app: Any, state: ServerState | None = None) -> None:
        config = uvicorn.Config(app, http=Protocol, lifespan="off", log_config=None)
        config.load()
        self.state = state or ServerState()
        self.state.default_headers = [DATE]
        self.writes: list[bytes] = []
        self.closed = False
        self.protocol = Protocol(config, self.state, {})
        self.protocol.connection_made(self)  # type: ignore[arg-type]

    def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            if not self.closed:
                self.protocol.data_received(piece)

    async def answers(self, *pieces: bytes, count: int = 1) -> bytes:
        """Feed a request, and return what is written until that many answers are complete."""
        before = self.state.total_requests
        self.feed(*pieces)
        await until(lambda: self.closed or self.state.total_requests >= before + count)
        return b"".join(self.writes)

    def hang_up(self) -> None:
        self.protocol.connection_lost(None)

    # The methods of a transport.

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - turns of the loop are what is waited for
            await asyncio.sleep(0)
