"""An agent works now and then, goes on after an error, and stops when told."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from lakelog.errors import Unavailable
from lakelog.maintenance import Maintenance
from lakelog.maintenance.agent import Agent
from lakelog.maintenance.retention_enforcer import RetentionEnforcer
from lakelog.model.topic import Retention, TopicSettings
from lakelog.storage.memory import MemoryStore
from lakelog.storage.store import HeadState, PartitionStore
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import one_engine, publish, text


class Clumsy(Agent):
    def __init__(self, *failures: Exception, every_seconds: float = 0.001) -> None:
        super().__init__({}, every_seconds=every_seconds)
        self._errors = list(failures)
        self.passes = 0

    async def work(self) -> None:
        self.passes += 1
        if self._errors:
            raise self._errors.pop(0)


async def test_an_agent_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    agent = Clumsy(Unavailable("down"), RuntimeError("boom"))
    with caplog.at_level(logging.WARNING):
        agent.start()
        await eventually_async(lambda: agent.passes >= 4, every=0.001)
        await agent.stop()
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert caplog.messages == ["Clumsy: down", "Clumsy: RuntimeError: boom"]
    assert caplog.records[1].exc_info


async def test_an_agent_that_fails_again_and_again_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    outage = [Unavailable("PostgreSQL at db cannot be reached.", unreachable="database") for _ in range(20)]
    agent = Clumsy(*[RuntimeError("boom") for _ in range(20)], *outage)
    with caplog.at_level(logging.WARNING):
        agent.start()
        await eventually_async(lambda: agent.passes >= 45, every=0.001)
        await agent.stop()
    assert caplog.messages == ["Clumsy: RuntimeError: boom"], "the database's own lines tell of its outages"


async def test_an_agent_stops_in_the_middle_of_its_work() -> None:
    began = asyncio.Event()

    class Slow(Agent):
        async def work(self) -> None:
            began.set()
            await asyncio.Event().wait()

    agent = Slow({}, every_seconds=0.001)
    agent.start()
    await began.wait()
    await agent.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_agent_without_an_interval_does_not_start() -> None:
    agent = Clumsy(every_seconds=0)
    agent.start()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await agent.stop()


async def test_all_agents_start_and_stop_together() -> None:
    async with one_engine() as (engine, _):
        before = len(asyncio.all_tasks())
        maintenance = Maintenance(engine)
        await maintenance.stop()
        maintenance.start()
        assert len(asyncio.all_tasks()) == before + 7
        await maintenance.stop()
        assert len(asyncio.all_tasks()) == before


async def test_retention_that_is_switched_off_removes_nothing_and_finishes_deletes() -> None:
    async with one_engine() as (engine, scope):
        before = len(asyncio.all_tasks())
        maintenance = Maintenance(engine, retention_seconds=0)
        maintenance.start()
        assert len(asyncio.all_tasks()) == before + 6, "the agent of dead letters does not start"
        await maintenance.stop()
        topic = await engine.topics.create(scope, "orders", 1, TopicSettings(retention=Retention(max_count=1)))
        await publish(engine, scope, "orders", text("a"), text("b"))
        deleted = await engine.topics.create(scope, "deleted")
        await engine.catalog.topic_delete(deleted)
        await RetentionEnforcer(engine, is_enforced=False).work()
        (kept,) = await engine.cells[0].heads_read([topic.pid(0)])
        (closed,) = await engine.cells[0].heads_read([deleted.pid(0)])
        assert (kept.log_start, closed.state) == (0, HeadState.DELETED)
        await RetentionEnforcer(engine).work()
        assert [head.log_start for head in await engine.cells[0].heads_read([topic.pid(0)])] == [1]


class Counting(Agent):
    """Counts the passes in each cell."""

    def __init__(self, *stores: PartitionStore, every_seconds: float = 0.001) -> None:
        super().__init__(dict(enumerate(stores)), every_seconds=every_seconds)
        self.passes: Counter[int] = Counter()

    async def work(self) -> None:
        self.passes.update((await self.elected()).keys())


async def test_one_process_works_in_a_cell_and_another_takes_over_when_it_stops() -> None:
    store = MemoryStore()
    first, second = Counting(store), Counting(store)
    first.start()
    await eventually_async(lambda: first.passes[0] >= 3, every=0.001)
    second.start()
    before = first.passes[0]
    await eventually_async(lambda: first.passes[0] >= before + 5, every=0.001)
    assert second.passes[0] == 0
    await first.stop()
    await eventually_async(lambda: second.passes[0] >= 3, every=0.001)
    await second.stop()


async def test_a_pass_outside_of_the_loop_is_not_subject_to_the_election() -> None:
    store = MemoryStore()
    first, second = Counting(store), Counting(store)
    await first.work()
    await second.work()
    assert (first.passes[0], second.passes[0]) == (1, 1)


async def test_a_cell_that_is_down_is_worked_in_by_no_process_and_the_others_are() -> None:
    down = MemoryStore()

    async def refuse(*_: object) -> bool:
        raise Unavailable("down")

    down.elections.elect = refuse  # type: ignore[method-assign]
    agent = Counting(down, MemoryStore())
    agent.start()
    await eventually_async(lambda: agent.passes[1] >= 3, every=0.001)
    await agent.stop()
    assert agent.passes[0] == 0
