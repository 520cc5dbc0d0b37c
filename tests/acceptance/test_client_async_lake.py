"""Whole ranges of messages through the client: the same over every transport."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import lakelog
from lakelog.errors import Conflict, InvalidRequest, OffsetOutOfRange, PartitionNotFound, TopicNotFound
from lakelog.model.lake import PlanOptions
from lakelog.model.segment import Segment


async def test_a_plan_says_where_everything_is(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(partitions=2)
        await topic.publish_many([lakelog.Outgoing(str(n), partition=0) for n in range(10)])
        plan = await log.lake.plan("t")
        info = await topic.describe()
        assert (plan.topic, plan.incarnation, plan.epoch, plan.store) == ("t", info.incarnation, info.epoch, None)
        first, second = plan.partitions
        assert (first.partition, first.log_start, first.high_watermark, first.start, first.end) == (0, 0, 10, 0, 10)
        assert (first.segments, first.hot_from) == ((), 0)
        assert (second.partition, second.start, second.end) == (1, 0, 0)


async def test_a_plan_is_cut_to_offsets_and_times(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish_many([str(n) for n in range(10)])
        middle = datetime.now(UTC)
        await topic.publish("10")

        async def span(wish: PlanOptions) -> tuple[int, int]:
            (one,) = (await log.lake.plan("t", wish)).partitions
            return one.start, one.end

        assert await span(PlanOptions(starts={0: 3}, ends={0: 5})) == (3, 5)
        assert await span(PlanOptions(starts={0: 30}, ends={0: 50})) == (11, 11)
        assert await span(PlanOptions(starts={0: 5}, ends={0: 3})) == (5, 5)
        assert await span(PlanOptions(since=middle)) == (10, 11)
        assert await span(PlanOptions(until=middle)) == (0, 10)
        await topic.purge()
        assert await span(PlanOptions(starts={0: 3})) == (11, 11)
        with pytest.raises(PartitionNotFound):
            await span(PlanOptions(starts={1: 0}))


async def test_a_plan_of_another_incarnation_is_refused(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        old = (await topic.create()).incarnation
        await topic.delete()
        await topic.create()
        with pytest.raises(TopicNotFound):
            await log.lake.plan("t", PlanOptions(incarnation=old))
        with pytest.raises(TopicNotFound):
            await log.lake.plan("nothing")


async def test_watermarks_wait_for_more(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(partitions=2)
        marks = await log.lake.watermarks("t")
        assert (marks.starts, marks.ends) == ({0: 0, 1: 0}, {0: 0, 1: 0})
        assert (await log.lake.watermarks("t", wait_seconds=0.05)).ends == {0: 0, 1: 0}
        await topic.publish("a", partition=1)
        assert (await log.lake.watermarks("t", {0: 0, 1: 0}, wait_seconds=20)).ends == {0: 0, 1: 1}


async def test_a_range_is_read_whole_or_not_at_all(url: str) -> None:
    """S3: fewer messages than requested are an error, never the end."""
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish_many([str(n) for n in range(100)])
        await topic.publish_many([lakelog.Outgoing(str(n), headers={"n": str(n)}) for n in range(100, 130)])

        async def values(first: int, end: int) -> list[str]:
            batches = [batch async for batch in log.lake.read_range("t", 0, first, end)]
            offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
            assert offsets == list(range(first, end))
            places = ["partition", "offset", "appended_at", "epoch", "key"]
            assert all(batch.schema.names[:5] == places for batch in batches)
            return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]

        assert await values(95, 110) == [str(n) for n in range(95, 110)]
        assert await values(7, 7) == []
        with pytest.raises(OffsetOutOfRange):
            await values(100, 131)
        await topic.purge()
        with pytest.raises(OffsetOutOfRange):
            await values(95, 110)


async def test_a_range_of_a_recreated_topic_is_not_read(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        old = (await topic.create()).incarnation
        await topic.delete()
        await topic.create()
        await topic.publish("new")
        with pytest.raises(TopicNotFound):
            await _all(log, old)


async def _all(log: lakelog.AsyncLakelog, incarnation: int) -> list[object]:
    return [batch async for batch in log.lake.read_range("t", 0, 0, 1, incarnation=incarnation)]


async def test_watermarks_of_a_recreated_topic_are_its_own(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish_many(["a", "b"])
        old = await log.lake.watermarks("t")
        async with lakelog.connect_async(url) as other:
            await other.topic("t").delete()
            await other.topic("t").create()
        new = await log.lake.watermarks("t", old.ends, wait_seconds=0.5)
        assert (new.incarnation > old.incarnation, new.ends) == (True, {0: 0})


async def test_without_an_object_store_nothing_is_registered(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        await log.topic("t").create()
        await log.topic("t").publish_many([str(n) for n in range(10)])
        (part,) = await log.lake.tierable("t", min_bytes=0, min_age=0)
        assert (part.partition, part.first, part.end) == (0, 0, 10)
        assert await log.lake.tierable("t") == []
        plan = await log.lake.plan("t")
        made = Segment(
            partition=0,
            first=0,
            end=10,
            path=f"e{plan.environment_id}/t{plan.incarnation}/p00000/{0:020d}-{10:020d}-{'0' * 16}.parquet",
            bytes=part.bytes,
            file_hash="00",
            content_hash="00",
            first_at=datetime.now(UTC),
            last_at=datetime.now(UTC),
            epoch=0,
        )
        with pytest.raises(Conflict, match="LAKELOG_OBJECT_STORE"):
            await log.lake.register("t", [made])
        assert await log.lake.verified("t", [made]) == [False]
        assert await log.lake.unregister("t", [made]) == [True]
        assert await log.lake.unverified("t") == []


async def test_files_are_removed_only_after_an_earlier_look(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        await log.topic("t").create()
        prefix = f"e{(await log.lake.plan('t')).environment_id}/"
        paths = [f"{prefix}{n}" for n in range(1200)]
        assert await log.lake.look(paths, min_age=0) == []
        assert await log.lake.look(paths) == []
        assert await log.lake.look(paths, min_age=0) == paths
        await log.lake.swept(paths[1:])
        assert await log.lake.look(paths, min_age=0) == paths[:1]
        with pytest.raises(InvalidRequest):
            await log.lake.look(["elsewhere/a"])
