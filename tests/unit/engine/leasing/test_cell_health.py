"""A cell that neither answers nor refuses stops its partitions only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from lakelog.engine import Engine
from lakelog.engine.leasing import cell_health, watcher
from lakelog.engine.leasing.consuming import Leased
from lakelog.errors import OutcomeUnknown, Unavailable
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import started

pytestmark = pytest.mark.usefixtures("soon")
JOURNALS = ("journals_read", "journals_commit")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(cell_health, "SLOW_CALL_SECONDS", 0.1)
    monkeypatch.setattr(cell_health, "PROBE_SECONDS", 0.1)


class Gate:
    """Holds up what is asked of a store while it is shut."""

    def __init__(self, store: MemoryStore) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.only_journals = False
        for name in JOURNALS:
            setattr(store.groups, name, self._gated(getattr(store.groups, name)))
        for name in ("clock", "heads_read", "changes_read"):
            setattr(store, name, self._gated(getattr(store, name)))

    def shut(self, *, only_journals: bool = False) -> None:
        self.only_journals = only_journals
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def _gated(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def gated(*args: object) -> Any:
            if call.__name__ in JOURNALS or not self.only_journals:
                await self._open.wait()
            return await call(*args)

        return gated


@dataclass
class Scene:
    """A topic with two partitions in each cell."""

    engine: Engine
    scope: Scope
    gates: Sequence[Gate]
    cells: Sequence[int]

    async def publish(self, cell: int) -> None:
        for partition in self.partitions(cell):
            await self.engine.publisher.messages(self.scope, "orders", [Message(value=b"x", partition=partition)])

    def partitions(self, cell: int) -> list[int]:
        return [partition for partition, at in enumerate(self.cells) if at == cell]

    async def consume(self, request: str, seconds: float = 2.0) -> Sequence[Leased]:
        ask = ConsumeRequest(
            topic="orders",
            group="billing",
            owner="worker",
            request_id=request,
            max_messages=100,
            wait_ms=int(seconds * 1000),
            start_from="earliest",
        )
        return (await self.engine.leases.consume(self.scope, ask)).leases

    async def ack(self, leases: Sequence[Leased]) -> list[type]:
        said = [
            LeaseAnswer(verb=Verb.ACK, partition=each.partition, token=each.token, offsets=tuple(each.offsets))
            for each in leases
        ]
        return [type(each) for each in await self.engine.leases.answer(self.scope, "orders", "billing", "worker", said)]


@asynccontextmanager
async def scene(cells: int = 2) -> AsyncIterator[Scene]:
    catalog, stores = MemoryCatalog(), [MemoryStore() for _ in range(cells)]
    gates = [Gate(store) for store in stores]
    async with started(catalog, *stores) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders", partitions=2 * cells)
        try:
            yield Scene(engine, scope, gates, topic.cells)
        finally:
            for gate in gates:
                gate.open()


def places(leases: Sequence[Leased]) -> list[int]:
    return sorted(lease.partition for lease in leases)


@pytest.mark.parametrize("down", [0, 1])
async def test_messages_of_other_cells_are_handed_out(down: int) -> None:
    """S12: the first call is of unknown outcome, and what it may have leased comes back."""
    async with scene() as it:
        assert not await it.consume("0", 0.0)
        await it.publish(1 - down)
        await it.publish(down)
        it.gates[down].shut()
        with pytest.raises(OutcomeUnknown):
            await it.consume("1")
        first = await it.consume("1")
        assert places(first) == it.partitions(1 - down)
        await it.publish(1 - down)
        assert await it.ack(first) == [Answered] * 2
        assert places(await it.consume("2")) == it.partitions(1 - down)

        it.gates[down].open()
        found: list[int] = []

        async def all_came() -> bool:
            found.extend(places(await it.consume(f"3-{len(found)}")))
            return sorted(found) == it.partitions(down)

        await eventually_async(all_came, what="what the silent cell holds")


@pytest.mark.parametrize("down", [0, 1])
async def test_who_waits_hears_of_other_cells(down: int) -> None:
    """The unresponsive cell has messages, and no call is refused because of it."""
    async with scene() as it:
        assert not await it.consume("0", 0.0)
        await it.publish(down)
        it.gates[down].shut()
        with pytest.raises(OutcomeUnknown):
            await it.consume("1")
        waiting = asyncio.create_task(it.consume("1", 20.0))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await it.publish(1 - down)
        assert set(places(await waiting)) <= set(it.partitions(1 - down))


@pytest.mark.parametrize("down", [0, 1])
async def test_answers_to_other_cells_are_accepted(down: int) -> None:
    async with scene() as it:
        await it.publish(0)
        await it.publish(1)
        leases = sorted(await it.consume("1"), key=lambda lease: it.cells[lease.partition] == down)
        assert len(leases) == 4
        it.gates[down].shut()
        assert await it.ack(leases) == [Answered, Answered, OutcomeUnknown, OutcomeUnknown]
        assert await it.ack(leases) == [Answered, Answered, Unavailable, Unavailable]
        it.gates[down].open()

        async def all_acked() -> bool:
            return await it.ack(leases) == [Answered] * 4

        await eventually_async(all_acked, what="all are acked")


async def test_a_call_that_takes_long_in_a_cell_that_answers_is_waited_for() -> None:
    """It may wait for a lock."""
    async with scene() as it:
        await it.publish(0)
        await it.publish(1)
        it.gates[0].shut(only_journals=True)
        waiting = asyncio.create_task(it.consume("1", 20.0))
        await asyncio.sleep(0.5)
        it.gates[0].open()
        assert places(await waiting) == [0, 1, 2, 3]


async def test_the_only_cell_is_waited_for() -> None:
    async with scene(cells=1) as it:
        await it.publish(0)
        it.gates[0].shut()
        waiting = asyncio.create_task(it.consume("1", 20.0))
        await asyncio.sleep(0.5)
        it.gates[0].open()
        assert places(await waiting) == [0, 1]


async def test_a_question_without_an_answer_is_asked_again() -> None:
    """A connection may be dead while the cell is back, and then its calls never end."""

    class HalfOpen(MemoryStore):
        asked = 0

        async def clock(self) -> datetime:
            self.asked += 1
            if self.asked < 3:
                await asyncio.sleep(600)
            return await super().clock()

    fell: list[int] = []
    store = HalfOpen()
    health = cell_health.CellHealth({0: store, 1: MemoryStore()}, fell.append)
    with health.awaiting(0):
        await eventually_async(lambda: 0 in health, what="it is silent")
        await eventually_async(lambda: 0 not in health, what="it is heard")
    assert (fell, store.asked) == ([0], 3)
    health.close()
