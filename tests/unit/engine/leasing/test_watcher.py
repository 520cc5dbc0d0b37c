"""The watcher finds what was not announced, and costs the same for many groups as for one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lakelog.engine import Engine
from lakelog.engine.leasing import watcher
from lakelog.engine.leasing.consuming import ConsumeResult
from lakelog.model.lease import ConsumeRequest
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import Append
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import packed, started

TICK = 0.05
pytestmark = pytest.mark.usefixtures("soon")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "WATCH_SECONDS", TICK)


def counted(*stores: object) -> Counter[str]:
    """Count the calls of the stores by name, from now on."""
    calls: Counter[str] = Counter()
    for store in stores:
        for name in dir(type(store)):
            if not name.startswith("_") and asyncio.iscoroutinefunction(getattr(type(store), name)):
                setattr(store, name, _counting(calls, name, getattr(store, name)))
    return calls


def _counting(calls: Counter[str], name: str, call: Any) -> Any:
    async def counting(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return await call(*args, **kwargs)

    return counting


async def consume(engine: Engine, scope: Scope, topic: str, group: str, seconds: float = 20.0) -> ConsumeResult:
    request = ConsumeRequest(topic=topic, group=group, owner=group, wait_ms=int(seconds * 1000))
    return await engine.leases.consume(scope, request)


@asynccontextmanager
async def waiting_groups(engine: Engine, scope: Scope, count: int) -> AsyncIterator[list[asyncio.Task[ConsumeResult]]]:
    """Let groups wait for messages, each in a topic of its own, until they have nothing more to look for."""
    for number in range(count):
        await engine.topics.create(scope, f"topic-{number}", partitions=2)
    calls = [asyncio.create_task(consume(engine, scope, f"topic-{n}", f"group-{n}")) for n in range(count)]
    try:
        await asyncio.sleep(4 * TICK)
        yield calls
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_many_waiting_groups_cost_one_query_per_cell_and_one_of_the_catalog_per_second() -> None:
    stores, catalog = [MemoryStore(), MemoryStore()], MemoryCatalog()
    async with started(catalog, *stores) as engine:
        scope = await catalog.scope_create("shop", "test")
        async with waiting_groups(engine, scope, 30):
            calls = counted(catalog, catalog.groups, *stores, *(store.groups for store in stores))
            await eventually_async(lambda: calls["versions_read"] >= 5)
        assert set(calls) == {"changes_read", "versions_read"}, "nothing is read for a single group"
        assert calls["changes_read"] <= 2 * (calls["versions_read"] + 1)


async def test_nothing_is_read_when_no_consumer_waits() -> None:
    store, catalog = MemoryStore(), MemoryCatalog()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        async with waiting_groups(engine, scope, 2):
            pass
        await asyncio.sleep(2 * TICK)
        calls = counted(catalog, catalog.groups, store, store.groups)
        await asyncio.sleep(5 * TICK)
        assert not calls


async def test_messages_that_were_not_announced_are_found() -> None:
    stores, catalog = [MemoryStore(), MemoryStore()], MemoryCatalog()
    async with started(catalog, *stores) as engine:
        scope = await catalog.scope_create("shop", "test")
        async with waiting_groups(engine, scope, 3) as calls:
            topic = await engine.topics.find(scope, "topic-1")
            for store, pids in zip(stores, topic.pids_by_cell().values(), strict=True):
                await store.append([Append(pid=pids[0], epoch=0, payloads=[packed("one")])])
            async with asyncio.timeout(20):
                assert (await calls[1]).leases
            assert not calls[0].done() and not calls[2].done()


async def test_partitions_that_were_added_elsewhere_are_found_by_consumers_that_wait() -> None:
    store, catalog = MemoryStore(), MemoryCatalog()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        async with waiting_groups(engine, scope, 1) as calls:
            topic = await engine.topics.find(scope, "topic-0")
            altered = await catalog.topic_alter(topic, topic.settings, [0])
            await store.heads_create([altered.pid(2)], altered.epoch)
            await asyncio.sleep(4 * TICK)
            await store.append([Append(pid=altered.pid(2), epoch=altered.epoch, payloads=[packed("one")])])
            async with asyncio.timeout(20):
                assert [lease.partition for lease in (await calls[0]).leases] == [2]


async def test_a_cell_that_hangs_delays_no_other_cell() -> None:
    stores, catalog = [MemoryStore(), MemoryStore()], MemoryCatalog()
    async with started(catalog, *stores) as engine:
        scope = await catalog.scope_create("shop", "test")
        async with waiting_groups(engine, scope, 1) as calls:
            gate = asyncio.Event()

            async def hangs(_: object) -> Any:
                await gate.wait()
                raise AssertionError("it is cancelled")

            stores[0].changes_read = hangs  # type: ignore[method-assign]
            await asyncio.sleep(2 * TICK)
            topic = await engine.topics.find(scope, "topic-0")
            await stores[1].append([Append(pid=topic.pids_by_cell()[1][0], epoch=0, payloads=[packed("one")])])
            async with asyncio.timeout(20):
                assert (await calls[0]).leases
