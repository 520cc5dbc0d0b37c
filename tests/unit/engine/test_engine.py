"""The engine as a whole: closing it finishes what is on its way and lets go of the stores."""

from __future__ import annotations

import asyncio

from lakelog.engine import Engine, EngineSettings
from lakelog.storage.memory import MemoryCatalog
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import WatchedStore, publish, text


class ClosingStore(WatchedStore):
    closed_after: int | None = None

    async def close(self) -> None:
        self.closed_after = len(self.appends)


async def test_close_finishes_commits_and_then_closes_the_stores() -> None:
    catalog, stores = MemoryCatalog(), [ClosingStore(), ClosingStore()]
    engine = Engine(catalog, dict(enumerate(stores)))
    await engine.start()
    scope = await catalog.scope_create("p", "e")
    await engine.topics.create(scope, "orders", 2)
    gates = [store.hold() for store in stores]
    calls = [asyncio.create_task(publish(engine, scope, "orders", text(str(n)))) for n in range(20)]
    await eventually_async(lambda: all(store.appends for store in stores))
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    assert [store.closed_after for store in stores] == [None, None]
    for gate in gates:
        gate.set()
    await closing
    assert len({receipt.id for (receipt,) in await asyncio.gather(*calls)}) == 20
    assert [store.closed_after for store in stores] == [len(store.appends) for store in stores]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_memory_budget_is_as_set() -> None:
    engine = Engine(MemoryCatalog(), {0: WatchedStore()}, EngineSettings(memory_bytes=123))
    assert engine.budget.limit == 123
    await engine.close()
