"""Retention by age, count and bytes, to the message; deletes that were broken off."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from lakelog.engine import Engine
from lakelog.errors import TopicNotFound, Unavailable
from lakelog.maintenance.retention_enforcer import RetentionEnforcer
from lakelog.model.topic import Retention, Scope, TopicSettings
from lakelog.storage.store import Head, HeadState
from tests.unit.engine.support import Clock, WatchedStore, one_engine, publish, text, values


async def starts(engine: Engine, scope: Scope, name: str = "orders") -> list[int]:
    return [head.log_start for head in (await engine.topics.describe(scope, name)).heads]


async def kept(engine: Engine, scope: Scope, retention: Retention, name: str = "orders", partitions: int = 1) -> None:
    await engine.topics.create(scope, name, partitions, TopicSettings(retention=retention))


async def test_retention_by_count_keeps_exactly_that_number_per_partition() -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        await kept(engine, scope, Retention(max_count=7), partitions=3)
        await publish(engine, scope, "orders", *(text(str(n), partition=0) for n in range(20)))
        await publish(engine, scope, "orders", *(text(str(n), partition=1) for n in range(8)))
        await publish(engine, scope, "orders", *(text(str(n), partition=2) for n in range(7)))
        agent = RetentionEnforcer(engine)
        await agent.work()
        assert await starts(engine, scope) == [13, 1, 0]
        await agent.work()
        assert await starts(engine, scope) == [13, 1, 0]
        assert await values(engine, scope, "orders", 0) == [str(n) for n in range(13, 20)]
        await publish(engine, scope, "orders", text("x", partition=0))
        await agent.work()
        assert await starts(engine, scope) == [14, 1, 0]


async def test_by_age_whole_batches_go_when_they_are_older() -> None:
    clock = Clock()
    async with one_engine(WatchedStore(clock)) as (engine, scope):
        await kept(engine, scope, Retention(max_age=timedelta(hours=1)))
        agent = RetentionEnforcer(engine)
        for n in range(4):
            await publish(engine, scope, "orders", text(f"{n}a"), text(f"{n}b"))
            clock.pass_by(minutes=20)
        # Batches are 80, 60, 40 and 20 minutes old; at exactly the limit one stays.
        await agent.work()
        assert await starts(engine, scope) == [2]
        clock.pass_by(seconds=1)
        await agent.work()
        assert await starts(engine, scope) == [4]
        clock.pass_by(days=1)
        await agent.work()
        assert await starts(engine, scope) == [8]
        assert (await publish(engine, scope, "orders", text("new")))[0].offset == 8
        await agent.work()
        assert await values(engine, scope, "orders") == ["new"]


async def test_by_bytes_as_many_whole_batches_stay_as_fit() -> None:
    store = WatchedStore()
    async with one_engine(store) as (engine, scope):
        await engine.topics.create(scope, "orders")
        for n in range(5):
            await publish(engine, scope, "orders", text(f"{n}a"), text(f"{n}b"))
        size = len(store.appends[0][0].payloads[0].data)
        assert {len(appends[0].payloads[0].data) for appends in store.appends} == {size}
        agent = RetentionEnforcer(engine)
        for limit, start in (
            (5 * size, 0),
            (5 * size - 1, 2),
            (3 * size, 4),
            (2 * size + size // 2, 6),
            (size - 1, 10),
        ):
            settings = TopicSettings(retention=Retention(max_bytes=limit))
            await engine.topics.alter(scope, "orders", change=lambda _, settings=settings: settings)
            await agent.work()
            assert await starts(engine, scope) == [start]


async def test_the_strictest_limit_counts() -> None:
    clock = Clock()
    async with one_engine(WatchedStore(clock)) as (engine, scope):
        await kept(engine, scope, Retention(max_count=5, max_age=timedelta(hours=1), max_bytes=1 << 30))
        for _ in range(10):
            await publish(engine, scope, "orders", text("x"))
        await RetentionEnforcer(engine).work()
        assert await starts(engine, scope) == [5]
        clock.pass_by(hours=2)
        await publish(engine, scope, "orders", text("y"))
        await RetentionEnforcer(engine).work()
        assert await starts(engine, scope) == [10]


async def test_topics_without_retention_and_other_scopes_topics_keep_their_own() -> None:
    async with one_engine() as (engine, scope):
        other = await engine.catalog.scope_create("shop", "other")
        await engine.topics.create(scope, "orders")
        await kept(engine, other, Retention(max_count=1))
        for place in (scope, other):
            await publish(engine, place, "orders", *[text("x")] * 5)
        await RetentionEnforcer(engine).work()
        assert (await starts(engine, scope), await starts(engine, other)) == ([0], [4])


async def test_a_delete_that_was_broken_off_is_finished() -> None:
    store = WatchedStore()
    async with one_engine(store, WatchedStore()) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 3)
        await publish(engine, scope, "orders", *(text("x", partition=n) for n in range(3)))
        # The first step of a delete, whose process died before the second.
        assert await engine.catalog.topic_delete(topic)
        await RetentionEnforcer(engine).work()
        for cell, pids in ((0, [topic.pid(0), topic.pid(2)]), (1, [topic.pid(1)])):
            heads = await engine.cells[cell].heads_read(pids)
            assert [(head.state, head.log_start) for head in heads] == [(HeadState.DELETED, 1)] * len(pids)
        assert await engine.catalog.topic_deleted() == []
        # Also for a server that still has the topic in its cache.
        with pytest.raises(TopicNotFound):
            await publish(engine, scope, "orders", text("late"))


class Down(WatchedStore):
    async def heads_read(self, pids: Sequence[int]) -> list[Head]:
        raise Unavailable("this cell is down")

    async def heads_close(self, pids: Sequence[int], state: HeadState) -> None:
        raise Unavailable("this cell is down")


async def test_a_cell_that_is_down_holds_up_only_its_own_partitions() -> None:
    async with one_engine(WatchedStore(), Down()) as (engine, scope):
        for name in ("a", "b", "c"):
            await kept(engine, scope, Retention(max_count=1), name, partitions=1 if name == "c" else 2)
            await publish(engine, scope, name, *(text("x", partition=0) for _ in range(3)))
        gone = await engine.topics.create(scope, "gone", 2)
        assert await engine.catalog.topic_delete(gone)
        await RetentionEnforcer(engine).work()
        assert [head.log_start for head in (await engine.topics.describe(scope, "c")).heads] == [2]
        for name in ("a", "b"):
            topic = await engine.topics.find(scope, name)
            assert [head.log_start for head in await engine.cells[0].heads_read([topic.pid(0)])] == [2]
        assert await engine.catalog.topic_deleted() == [gone]
