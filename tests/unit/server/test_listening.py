"""The sockets of a server process."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvloop

from lakelog.server.listening import ACCEPTED_PER_TURN, accepting


def test_connections_that_arrive_together_are_accepted_in_few_turns_of_the_event_loop() -> None:
    """One accepted connection in each turn would make callers wait for seconds while the turns are long."""
    count, turns = 4 * ACCEPTED_PER_TURN, 0

    async def accept_all() -> None:
        nonlocal turns
        accepted: list[asyncio.BaseTransport] = []

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.append(transport)

        listener = socket.create_server(("127.0.0.1", 0))
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Accepted, sock=each) for each in accepting(listener)]
        clients = [socket.create_connection(listener.getsockname()) for _ in range(count)]
        while len(accepted) < count:
            turns += 1
            await asyncio.sleep(0)
        closable: list[Any] = [*accepted, *servers, *clients]
        for each in closable:
            each.close()
        await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(accept_all())
    assert turns <= 2 * count / ACCEPTED_PER_TURN
