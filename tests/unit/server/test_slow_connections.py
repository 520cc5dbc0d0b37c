"""Connections that send or read slowly, or that are too many: they are closed, and others are served."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.server import calls, protocol
from lakelog.server.connections import Connections
from tests.kit.waiting import eventually_async
from tests.unit.server.harness import World, world
from tests.unit.server.wires import Wire

GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(protocol, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(protocol, "STALL_SECONDS", 0.1)


class _Wire(Wire):
    """A connection from an address."""

    def __init__(self, app: Any, address: str = "10.0.0.1") -> None:
        self.address = address
        self.aborted = False
        super().__init__(app)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (self.address, 1234) if name == "peername" else default

    def abort(self) -> None:
        self.aborted = self.closed = True

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)


async def test_a_connection_without_a_first_byte_is_closed() -> None:
    async with world() as made:
        wire = _Wire(made.app)
        await eventually_async(lambda: wire.closed)
        assert wire.written == b""


async def test_a_head_that_does_not_end_is_refused() -> None:
    async with world() as made:
        wire = _Wire(made.app)
        wire.feed(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(20):
            await asyncio.sleep(0.02)
            wire.feed(b"x-a: b\r\n")
        assert wire.closed and wire.written.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_does_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BODY_SECONDS", 0.1)
    # The limit of the connection is the later one, also if the machine pauses.
    monkeypatch.setattr(protocol, "BODY_SECONDS", 30.0)
    async with world() as made:
        wire = _Wire(made.app)
        wire.feed(
            b"POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer %s\r\ncontent-length: 100\r\n\r\n" % made.token.encode()
        )
        await eventually_async(lambda: wire.written.startswith(b"HTTP/1.1 408 "))
        assert made.app.traffic.in_flight == 0


async def test_a_body_that_nothing_reads_does_not_keep_the_connection() -> None:
    async with world() as made:
        wire = _Wire(made.app)
        wire.feed(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n")
        await eventually_async(lambda: b"200 OK" in wire.written)
        for _ in range(20):
            await asyncio.sleep(0.02)
            wire.feed(b"x")
        assert wire.closed


async def test_a_caller_that_does_not_read_is_cut_off() -> None:
    async with world() as made:
        wire = _Wire(made.app)
        await wire.answers(GET)
        wire.protocol.pause_writing()
        await eventually_async(lambda: wire.aborted)
        other = _Wire(made.app)
        await other.answers(GET)
        other.protocol.pause_writing()
        other.protocol.resume_writing()
        await asyncio.sleep(0.15)
        assert not other.aborted


async def test_an_idle_connection_and_a_waiting_call_stay() -> None:
    async with world() as made:
        wire = _Wire(made.app)
        await wire.answers(GET)
        await asyncio.sleep(0.15)
        assert not wire.closed
        path = b"/v1/topics/orders/partitions/0/messages?offset=latest&wait_ms=400"
        head = b"GET %s HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\n\r\n"
        wire.feed(head % (path, made.token.encode()) + GET + b"GET /healthz")
        await eventually_async(lambda: wire.closed)
        assert wire.written.count(b"200 OK") == 3 and b"408" in wire.written


async def _refused(made: World, address: str) -> bytes:
    wire = _Wire(made.app, address)
    return wire.written if wire.closed else b""


async def test_connections_are_limited_in_all_and_per_address() -> None:
    async with world() as made:
        made.app.connections = Connections(3, 2)
        one, two = _Wire(made.app, "10.0.0.1"), _Wire(made.app, "10.0.0.1")
        refused = await _refused(made, "10.0.0.1")
        assert refused.startswith(b"HTTP/1.1 503 ") and b"Your address has 2 connections" in refused
        assert b"retry-after: 1" in refused
        other = _Wire(made.app, "10.0.0.2")
        assert b"The server has 3 connections" in await _refused(made, "10.0.0.3")
        for wire in (one, other):
            await wire.answers(GET)
            wire.hang_up()
        assert made.app.connections.count == 1
        for address in ("10.0.0.1", "10.0.0.2"):
            assert b"200 OK" in await _Wire(made.app, address).answers(GET)
        two.hang_up()
