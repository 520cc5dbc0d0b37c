"""A consume whose answer was lost gets its lease again, whichever other workers polled in between, at any server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import ConsumeResult, Leased
from lakelog.errors import Unavailable
from lakelog.model.group import Order
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import started

ASK = ConsumeRequest(
    topic="orders",
    group="billing",
    owner="ann",
    request_id="r-1",
    max_messages=10,
    isolates=True,
    start_from="earliest",
    order=Order.NONE,
)

HANG_SECONDS = 15.0
"""A call that takes longer than its wait and this hangs; a busy machine is slow for a second or two."""


async def publish(engine: Engine, scope: Scope, *partitions: int) -> None:
    for partition in partitions:
        await engine.publisher.messages(scope, "orders", [Message(value=b"x", partition=partition)])


async def consume(engine: Engine, scope: Scope, ask: ConsumeRequest = ASK, *, repeat: bool = False) -> ConsumeResult:
    return await asyncio.wait_for(engine.leases.consume(scope, ask, repeat=repeat), ask.wait_ms / 1000 + HANG_SECONDS)


async def granted(engine: Engine, scope: Scope, ask: ConsumeRequest = ASK) -> Leased:
    """The lease of a first call, whose answer is lost."""
    (lease,) = (await consume(engine, scope, replace(ask, wait_ms=1000))).leases
    return lease


@asynccontextmanager
async def idle(engine: Engine, scope: Scope, workers: int) -> AsyncIterator[None]:
    """Others wait for messages: they try every partition that may have some, and find nothing."""
    asks = [replace(ASK, owner=f"idle-{number}", request_id=None, wait_ms=20000) for number in range(workers)]
    waiting = [asyncio.create_task(engine.leases.consume(scope, each)) for each in asks]
    try:
        if waiting:
            (dispatcher,) = engine.leases._dispatchers.values()
            await eventually_async(lambda: len(dispatcher._waiting) == workers and not dispatcher._ready, every=0.005)
        yield
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def same(consumed: ConsumeResult, *leases: Leased) -> bool:
    found = {(each.partition, each.token, tuple(each.offsets)) for each in consumed.leases}
    return found == {(each.partition, each.token, tuple(each.offsets)) for each in leases}


@pytest.mark.parametrize("wait_ms", [0, 2000])
@pytest.mark.parametrize("partitions", [1, 4, 100])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("repeat", [False, True])
async def test_L1_a_repeat_finds_its_lease(workers: int, partitions: int, wait_ms: int, repeat: bool) -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders", partitions)
        await publish(engine, scope, partitions - 1)
        lost = await granted(engine, scope)
        async with idle(engine, scope, workers):
            again = await consume(engine, scope, replace(ASK, wait_ms=wait_ms), repeat=repeat)
        assert same(again, lost)


async def test_a_repeat_gets_its_lease_and_not_new_messages_of_another_partition() -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders", 4)
        await publish(engine, scope, 2)
        lost = await granted(engine, scope)
        assert not (await consume(engine, scope, replace(ASK, owner="bob"))).leases
        await publish(engine, scope, 0, 1)
        assert same(await consume(engine, scope), lost)


async def test_a_repeat_gets_the_leases_of_all_partitions_again() -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders", 4)
        await publish(engine, scope, 1, 3)
        lost = (await consume(engine, scope)).leases
        assert len(lost) == 2
        async with idle(engine, scope, 2):
            assert same(await consume(engine, scope), *lost)


async def test_a_request_whose_lease_was_answered_gets_new_messages() -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, 0)
        first = await granted(engine, scope)
        ack = LeaseAnswer(verb=Verb.ACK, partition=0, token=first.token, offsets=(0,))
        assert await engine.leases.answer(scope, "orders", "billing", "ann", [ack]) == [Answered()]
        await publish(engine, scope, 0)
        (second,) = (await consume(engine, scope, ASK, repeat=True)).leases
        assert list(second.offsets) == [1]


@pytest.mark.parametrize("wait_ms", [0, 2000])
@pytest.mark.parametrize("partitions", [1, 4, 300])
@pytest.mark.parametrize("workers", [0, 2])
async def test_L1_a_repeat_finds_its_lease_after_the_home_of_the_group_moved(
    workers: int, partitions: int, wait_ms: int
) -> None:
    """The other server knew the group before: what it remembers is older than the lease."""
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as other:
        scope = await catalog.scope_create("shop", "test")
        await one.topics.create(scope, "orders", partitions)
        assert not (await consume(other, scope, replace(ASK, owner="bob"))).leases
        await publish(one, scope, partitions - 1)
        lost = await granted(one, scope)
        async with idle(other, scope, workers):
            again = await consume(other, scope, replace(ASK, wait_ms=wait_ms), repeat=True)
        assert same(again, lost)


async def test_a_repeat_finds_its_lease_at_a_server_that_knows_nothing_of_many_partitions() -> None:
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as new:
        scope = await catalog.scope_create("shop", "test")
        await one.topics.create(scope, "orders", 300)
        await publish(one, scope, 299)
        lost = await granted(one, scope)
        await publish(one, scope, 0, 1, 2)
        assert same(await consume(new, scope, ASK, repeat=True), lost)


async def test_a_call_that_waits_gets_the_lease_that_its_server_hears_of_later() -> None:
    """It is not marked, and waits before the server reads what another server wrote."""
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as other:
        scope = await catalog.scope_create("shop", "test")
        await one.topics.create(scope, "orders")
        assert not (await consume(other, scope, replace(ASK, owner="bob"))).leases
        waiting = asyncio.create_task(other.leases.consume(scope, replace(ASK, wait_ms=5000)))
        await asyncio.sleep(0.01)
        await publish(one, scope, 0)
        lost = await granted(one, scope)
        assert same(await asyncio.wait_for(waiting, 5.0), lost)


async def test_a_repeat_is_served_by_the_cells_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_there(*_: object) -> object:
        raise Unavailable("The cell cannot be reached.")

    stores, catalog = [MemoryStore(), MemoryStore()], MemoryCatalog()
    async with started(catalog, *stores) as engine, started(catalog, *stores) as new:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders", 4)
        await publish(engine, scope, 0, 1, 2, 3)
        monkeypatch.setattr(stores[0].groups, "journals_read", not_there)
        found = await consume(new, scope, replace(ASK, wait_ms=2000), repeat=True)
        assert len(found.leases) == 2
