"""Plans: cold, hot and cold again around a segment that does not count, and pages of a long history (S21, S22)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakelog.client.reading.plans import joined, rest_of
from lakelog.client.reading.read_ranges import ranges_of
from lakelog.engine import Engine
from lakelog.model.lake import Plan, PlanRequest
from lakelog.model.segment import Segment
from lakelog.model.topic import Scope
from lakelog.segments.layout import segment_path
from tests.unit.engine.support import WatchedStore, one_engine, publish, text


async def filled(engine: Engine, store: WatchedStore, scope: Scope, segments: Sequence[bool]) -> list[Segment]:
    """Publish a message per segment and one more to each partition. Verify those segments that are True."""
    topic = await engine.topics.create(scope, "orders", 2)
    made = []
    for partition in range(2):
        for offset in range(len(segments) + 1):
            await publish(engine, scope, "orders", text(str(offset), partition=partition))
        pid = topic.pid(partition)
        for offset in range(len(segments)):
            read = await store.read(pid, offset, max_messages=1, max_bytes=1)
            assert read is not None
            (batch,) = read.batches[:1]
            path = segment_path(scope.environment_id, topic.incarnation, partition, offset, offset + 1)
            made.append(
                Segment(
                    partition=partition,
                    first=offset,
                    end=offset + 1,
                    path=path,
                    bytes=1,
                    file_hash="ab",
                    content_hash="cd",
                    first_at=batch.appended_at,
                    last_at=batch.appended_at,
                    epoch=0,
                )
            )
            await store.cold.register([(pid, made[-1])])
            if segments[offset]:
                await store.cold.verified([(pid, made[-1])])
    return made


def located(plan: Plan) -> list[tuple[int, int, int, bool]]:
    return [(each.partition, each.first, each.end, each.segment is not None) for each in ranges_of(plan)]


async def test_what_is_behind_a_damaged_segment_is_read_from_its_files() -> None:
    store = WatchedStore()
    async with one_engine(store) as (engine, scope):
        made = await filled(engine, store, scope, [True, True, False, True, False, True])
        plan = await engine.lake.plan(scope, PlanRequest(topic="orders"))
        for partition, found in enumerate(plan.partitions):
            mine = made[6 * partition :]
            assert (found.segments, found.hot_from, found.later) == ((mine[0], mine[1]), 2, (mine[3], mine[5]))
            assert found.rest_from is None
        one = [(0, 1, True), (1, 2, True), (2, 3, False), (3, 4, True), (4, 5, False), (5, 6, True), (6, 7, False)]
        assert located(plan) == [(partition, *each) for partition in range(2) for each in one]
        part = await engine.lake.plan(scope, PlanRequest(topic="orders", starts={0: 2, 1: 7}, ends={0: 5}))
        assert located(part) == [(0, 2, 3, False), (0, 3, 4, True), (0, 4, 5, False)]


@pytest.mark.parametrize("verified", [[True] * 6, [True, False, True, True, False, True], [False] * 6])
@pytest.mark.parametrize("page", [1, 2, 3, 4, 5, 100])
async def test_pages_of_a_plan_make_the_same_plan(verified: list[bool], page: int) -> None:
    store = WatchedStore()
    async with one_engine(store) as (engine, scope):
        await filled(engine, store, scope, verified)
        whole = await engine.lake.plan(scope, PlanRequest(topic="orders", starts={0: 1}))
        plan = await engine.lake.plan(scope, PlanRequest(topic="orders", starts={0: 1}, max_segments=page))
        while (request := rest_of(plan)) is not None:
            following = await engine.lake.plan(
                scope, PlanRequest(topic="orders", starts=request.starts, ends=request.ends, max_segments=page)
            )
            assert sum(len(each.segments) + len(each.later) for each in following.partitions) <= max(2, page)
            plan = joined(plan, following)
        assert plan == whole
