"""Retention, drops and trims where history is cold: whole segments go, never younger messages (S23)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from lakelog.engine import Engine
from lakelog.maintenance.retention_enforcer import RetentionEnforcer
from lakelog.maintenance.trimmer import Trimmer
from lakelog.model.lake import FindOrphansRequest, TierableRequest
from lakelog.model.segment import Segment
from lakelog.model.topic import Retention, Scope, TopicSettings
from tests.unit.engine.support import Clock, WatchedStore, one_engine, publish, text


async def tier(engine: Engine, scope: Scope, segment_bytes: int) -> list[Segment]:
    """Registers and verifies segments of everything; their files are of no interest here."""
    store = engine.cells[0]
    topic = (await engine.topics.describe(scope, "orders")).topic
    pid = topic.pid(0)
    request = TierableRequest(topic="orders", segment_bytes=segment_bytes, min_bytes=0, min_age_ms=0)
    made: list[Segment] = []
    for each in (await engine.lake.tierable(scope, request)).ranges:
        first = await store.read(pid, each.first, max_messages=1, max_bytes=1)
        last = await store.read(pid, each.end - 1, max_messages=1, max_bytes=1)
        assert first is not None and last is not None
        made.append(
            Segment(
                partition=0,
                first=each.first,
                end=each.end,
                path=f"e1/{each.first}-{each.end}",
                bytes=1,
                file_hash="0",
                content_hash="0",
                first_at=first.batches[0].appended_at,
                last_at=last.batches[0].appended_at,
                epoch=last.batches[0].epoch,
            )
        )
    await store.cold.register([(pid, each) for each in made])
    assert all(await store.cold.verified([(pid, each) for each in made]))
    return made


async def log_start(engine: Engine, scope: Scope) -> int:
    return (await engine.topics.describe(scope, "orders")).heads[0].log_start


async def filled(engine: Engine, scope: Scope, clock: Clock, retention: Retention) -> Sequence[Segment]:
    """Six batches of two messages, twenty minutes apart, in three segments of four messages each; all dropped."""
    await engine.topics.create(scope, "orders", 1, TopicSettings(retention=retention))
    for n in range(6):
        await publish(engine, scope, "orders", text(f"{n}a"), text(f"{n}b"))
        clock.pass_by(minutes=20)
    one = (await engine.topics.describe(scope, "orders")).heads[0].total_bytes // 6
    segments = await tier(engine, scope, one + 1)
    assert [(each.first, each.end) for each in segments] == [(0, 4), (4, 8), (8, 12)]
    await engine.cells[0].roll()
    assert await engine.cells[0].rolls_drop(grace=timedelta(0)) != []
    return segments


async def test_by_age_a_segment_goes_when_its_last_message_is_older() -> None:
    clock = Clock()
    async with one_engine(WatchedStore(clock)) as (engine, scope):
        await filled(engine, scope, clock, Retention(max_age=timedelta(minutes=90)))
        agent = RetentionEnforcer(engine)
        # The batches are 120, 100, 80, 60, 40 and 20 minutes old.
        await agent.work()
        assert await log_start(engine, scope) == 4
        clock.pass_by(minutes=20)
        await agent.work()
        assert await log_start(engine, scope) == 4, "the segment's last message is 80 minutes old"
        clock.pass_by(minutes=11)
        await agent.work()
        assert await log_start(engine, scope) == 8


async def test_by_count_the_log_start_may_be_inside_of_a_segment() -> None:
    clock = Clock()
    async with one_engine(WatchedStore(clock)) as (engine, scope):
        await filled(engine, scope, clock, Retention(max_count=6))
        await RetentionEnforcer(engine).work()
        assert await log_start(engine, scope) == 6


async def test_by_bytes_no_more_goes_than_the_limit_asks_for() -> None:
    clock = Clock()
    async with one_engine(WatchedStore(clock)) as (engine, scope):
        await filled(engine, scope, clock, Retention(max_bytes=1 << 30))
        head = (await engine.topics.describe(scope, "orders")).heads[0]
        store = engine.cells[0]
        one = head.total_bytes // 6
        assert await store.offset_at_bytes(head.pid, head.total_bytes - 1) == 0
        assert await store.offset_at_bytes(head.pid, one * 5) == 0
        assert await store.offset_at_bytes(head.pid, one * 4) == 4


async def test_segments_below_the_log_start_are_forgotten_and_their_files_are_orphans() -> None:
    clock = Clock()
    async with one_engine(WatchedStore(clock)) as (engine, scope):
        segments = await filled(engine, scope, clock, Retention(max_count=6))
        paths = [each.path for each in segments]
        request = FindOrphansRequest(paths=paths, min_age_ms=0)
        await Trimmer(engine).work()
        assert (await engine.lake.find_orphans(scope, request)).paths == []
        await RetentionEnforcer(engine).work()
        await Trimmer(engine).work()
        assert (await engine.lake.find_orphans(scope, request)).paths == []
        assert (await engine.lake.find_orphans(scope, request)).paths == paths[:1]
        await engine.topics.delete(scope, "orders")
        await Trimmer(engine).work()
        assert (await engine.lake.find_orphans(scope, request)).paths == paths[:1]
        assert (await engine.lake.find_orphans(scope, request)).paths == paths
