"""Runs of pipelines in the catalog: one at a time, lost without reports, and remembered."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from lakelog.errors import Conflict
from lakelog.model.pipeline import PipelineRun, RunStart, RunState
from lakelog.model.topic import Scope
from lakelog.storage.pipelines import RUNS_KEPT
from lakelog.storage.store import Catalog
from tests.contract.stores import Backing
from tests.contract.test_catalog import new_scope

ALIVE = 30.0


def start(pipeline: str = "tier", topic: str | None = "orders") -> RunStart:
    return RunStart(run_id=secrets.token_hex(8), pipeline=pipeline, topic=topic, host="here")


async def begin(catalog: Catalog, scope: Scope, run: RunStart, alive_seconds: float = ALIVE) -> PipelineRun:
    return await catalog.pipelines.run_begin(scope, run, alive_seconds=alive_seconds)


async def listed(
    catalog: Catalog,
    scope: Scope,
    *,
    pipeline: str | None = None,
    topic: str | None = None,
    alive_seconds: float = ALIVE,
) -> list[PipelineRun]:
    return await catalog.pipelines.run_list(
        scope, pipeline=pipeline, topic=topic, limit=1000, alive_seconds=alive_seconds
    )


async def test_one_of_many_concurrent_runs_begins(backing: Backing) -> None:
    async with backing.catalog_pair() as pair:
        scope = await new_scope(pair[0])
        starts = [start() for _ in range(6)]
        begun = await asyncio.gather(*(begin(pair[n % 2], scope, each) for n, each in enumerate(starts)))
        assert len({run.run_id for run in begun}) == 1
        assert begun[0].run_id in {each.run_id for each in starts}
        assert begun[0].state is RunState.RUNNING
        assert [run.run_id for run in await listed(pair[1], scope)] == [begun[0].run_id]


async def test_other_topics_pipelines_and_environments_are_not_in_the_way(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope, elsewhere = await new_scope(one), await new_scope(one)
        for where, each in ((scope, start()), (scope, start("sweep", None)), (scope, start(topic="b"))):
            assert (await begin(other, where, each)).run_id == each.run_id
        mine = start()
        assert (await begin(one, elsewhere, mine)).run_id == mine.run_id
        assert [run.topic for run in await listed(one, scope, pipeline="sweep")] == [None]
        assert [run.topic for run in await listed(one, scope, topic="b")] == ["b"]
        assert not await one.pipelines.run_seen(scope, mine.run_id, {})
        assert await one.pipelines.run_end(scope, mine.run_id, RunState.DONE, {}, "") is None


async def test_a_repeat_returns_the_same_run_even_after_its_end(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope, mine = await new_scope(one), start()
        first = await begin(one, scope, mine)
        assert await begin(other, scope, mine) == first
        await one.pipelines.run_end(scope, mine.run_id, RunState.FAILED, {"messages": 3}, "why ä\0")
        again = await begin(other, scope, mine)
        assert (again.state, again.progress) == (RunState.FAILED, {"messages": 3})
        with pytest.raises(Conflict):
            await begin(one, await new_scope(one), mine)


async def test_a_run_that_reports_continues_and_shows_its_progress(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope, mine = await new_scope(one), start()
        first = await begin(one, scope, mine)
        assert await other.pipelines.run_seen(scope, mine.run_id, {"messages": 10, "bytes": 1 << 50})
        (found,) = await listed(one, scope)
        assert found.progress == {"messages": 10, "bytes": 1 << 50}
        assert found.seen_at >= first.seen_at
        assert not await one.pipelines.run_seen(scope, "unknown-run", {})


async def test_a_run_ends_once(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope, mine = await new_scope(one), start()
        await begin(one, scope, mine)
        ended = await one.pipelines.run_end(scope, mine.run_id, RunState.DONE, {"messages": 5}, "")
        assert ended is not None and ended.state is RunState.DONE and ended.ended_at is not None
        assert await other.pipelines.run_end(scope, mine.run_id, RunState.FAILED, {}, "late") == ended
        assert not await other.pipelines.run_seen(scope, mine.run_id, {"messages": 9})
        following = start()
        assert (await begin(other, scope, following)).run_id == following.run_id


async def test_a_run_without_reports_is_lost_permanently(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope, dead, heir = await new_scope(one), start(), start()
        await begin(one, scope, dead)
        await asyncio.sleep(0.002)
        assert [run.state for run in await listed(other, scope, alive_seconds=0.001)] == [RunState.LOST]
        assert [run.state for run in await listed(other, scope)] == [RunState.RUNNING]
        assert (await begin(other, scope, heir, alive_seconds=0.001)).run_id == heir.run_id
        assert not await one.pipelines.run_seen(scope, dead.run_id, {})
        lost = await one.pipelines.run_end(scope, dead.run_id, RunState.DONE, {}, "")
        assert lost is not None and lost.state is RunState.LOST
        assert [run.run_id for run in await listed(one, scope)] == [heir.run_id, dead.run_id]


async def test_old_runs_are_forgotten(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        scope = await new_scope(one)
        for _ in range(RUNS_KEPT + 5):
            mine = start()
            await begin(one, scope, mine)
            await one.pipelines.run_end(scope, mine.run_id, RunState.DONE, {}, "")
        assert RUNS_KEPT <= len(await listed(one, scope)) <= RUNS_KEPT + 1
