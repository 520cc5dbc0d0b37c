"""History that was loaded as segments: the readers of a partition whose first offsets exist only in files (S5, S20)."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import lakelog
from lakelog.errors import Conflict, InvalidRequest, TopicNotFound
from lakelog.model.load import LoadRequest, LoadStatus, PartitionLoad
from lakelog.model.segment import Segment
from lakelog.segments.layout import segment_path
from lakelog.segments.writer import SegmentWriter
from tests.acceptance.test_cold_history import Here, Place, fetched, installed, place, publish, tier

__all__ = ["place"]
OLD = datetime(2020, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


async def file(here: Here, topic: str, first: int, end: int, at: datetime) -> Segment:
    """Write a file with these offsets and one time."""
    plan, sink = await here.log.lake.plan(topic), io.BytesIO()
    count = end - first
    with SegmentWriter(sink, 0) as writer:
        writer.write(
            pa.record_batch(
                {
                    "partition": pa.array([0] * count, pa.int32()),
                    "offset": pa.array(range(first, end), pa.int64()),
                    "appended_at": pa.array([at] * count, pa.timestamp("us", "UTC")),
                    "epoch": pa.array([plan.epoch] * count, pa.int32()),
                    "key": [f"k{n % 5}".encode() for n in range(first, end)],
                    "value": [f"v{n}".encode() for n in range(first, end)],
                }
            )
        )
        sealed = writer.close()
    path = segment_path(plan.environment_id, plan.incarnation, 0, first, end)
    here.objects.put(path, sink.getvalue())
    return sealed.segment(path)


async def request(here: Here, topic: str, *segments: Segment, name: str = "history") -> LoadRequest:
    part = PartitionLoad(partition=0, first=segments[0].first, segments=segments, fingerprint="0a")
    return LoadRequest(topic=topic, name=name, incarnation=(await here.log.lake.plan(topic)).incarnation, parts=[part])


async def loaded(here: Here, topic: str, days: int = 3) -> list[Segment]:
    """Create a topic, and load ten messages for each of these days."""
    await here.log.topic(topic).create()
    segments = [await file(here, topic, n * 10, n * 10 + 10, OLD + n * DAY) for n in range(days)]
    (answer,) = await here.log.lake.load(await request(here, topic, *segments))
    assert (answer.status, answer.first, answer.end) == (LoadStatus.LOADED, 0, days * 10)
    return segments


async def test_loaded_messages_are_read_like_published_ones(place: Place) -> None:
    """Fetch, tail, seek to a time, leases, tiering, dropped hot tables and a purge."""
    async with installed(place) as here:
        log, topic = here.log, here.log.topic("t")
        await loaded(here, "t")
        await publish(log, "t", 5, times=1)
        rows = await fetched(log, "t")
        assert [row[0] for row in rows] == list(range(35))
        assert rows[12][1:4] == (b"k2", b"v12", OLD + DAY)
        assert (await topic.fetch(time=OLD + DAY, limit=1)).messages[0].offset == 10
        assert (await topic.fetch(last=7, limit=1)).messages[0].offset == 28
        info = (await topic.describe()).partition_list[0]
        assert (info.log_start, info.high_watermark) == (0, 35)
        async with log.consumer("t", group="g", start_from="earliest") as consumer:
            seen: list[int] = []
            while len(seen) < 35:
                batch = await consumer.batch(20, timeout=20)
                seen += [message.offset for message in batch]
                await batch.ack()
        assert sorted(seen) == list(range(35))
        assert [(each.first, each.end) for each in await tier(here, "t")] == [(30, 35)]
        assert await here.roll_and_drop() != []
        assert await fetched(log, "t") == rows
        await topic.purge()
        assert await fetched(log, "t", start=35) == []


async def test_retention_removes_loaded_messages_by_age_count_and_bytes(place: Place) -> None:
    async with installed(place) as here:
        segments = await loaded(here, "t")
        async with here.cell() as store:
            (plan,) = (await here.log.lake.plan("t")).partitions
            pid = ((await here.log.topic("t").describe()).incarnation << 16) | plan.partition
            assert await store.offset_at_time(pid, OLD + 2 * DAY) == 20
            assert await store.offset_at_bytes(pid, segments[-1].bytes) == 20
            await store.log_start_raise([(pid, 20)])
        assert [row[0] for row in await fetched(here.log, "t", start=20)] == list(range(20, 30))
        assert [each.first for each in (await here.log.lake.plan("t")).partitions[0].segments] == [20]


async def test_a_waiting_reader_gets_loaded_messages(place: Place) -> None:
    async with installed(place) as here:
        await here.log.topic("t").create()
        segment = await file(here, "t", 0, 10, OLD)
        await here.log.lake.load(await request(here, "t", segment))
        marks = await here.log.lake.watermarks("t", {0: 0}, wait_seconds=20)
        assert marks.ends == {0: 10}


async def test_a_repeated_load_adds_nothing(place: Place) -> None:
    async with installed(place) as here:
        segments = await loaded(here, "t")
        (again,) = await here.log.lake.load(await request(here, "t", *segments))
        (found,) = await here.log.lake.find_load("t", "history")
        assert again == found
        assert (found.status, found.first, found.end, found.fingerprint) == (LoadStatus.KNOWN, 0, 30, "0a")
        assert await here.log.lake.find_load("t", "other") == []


async def test_a_load_that_does_not_fit_is_refused(place: Place) -> None:
    async with installed(place) as here:
        topic, lake = here.log.topic("t"), here.log.lake
        await topic.create()
        one, two = await file(here, "t", 0, 10, OLD + DAY), await file(here, "t", 10, 20, OLD)
        with pytest.raises(InvalidRequest, match="The times of the segments of partition 0 fall"):
            await lake.load(await request(here, "t", one, two))
        with pytest.raises(InvalidRequest, match="do not follow each other from offset 10"):
            await lake.load(await request(here, "t", two, one))
        wide = await file(here, "t", 0, 10, OLD)
        days = Segment(**{**{n: getattr(wide, n) for n in wide.__struct_fields__}, "last_at": OLD + DAY})
        with pytest.raises(InvalidRequest, match="messages of several days"):
            await lake.load(await request(here, "t", days))
        await topic.set_schema({"type": "object"})
        with pytest.raises(Conflict, match="has a schema"):
            await lake.load(await request(here, "t", one))
        await topic.delete()
        await topic.create()
        with pytest.raises(InvalidRequest, match="is not the path"):
            await lake.load(
                await request(
                    here,
                    "t",
                    Segment(
                        **{**{n: getattr(one, n) for n in one.__struct_fields__}, "path": "e9/t1/p00000/x.parquet"}
                    ),
                )
            )
        stale = await request(here, "t", one)
        await topic.delete()
        await topic.create()
        with pytest.raises(TopicNotFound, match="deleted and created again"):
            await lake.load(stale)
    async with lakelog.connect_async("memory://") as log:
        await log.topic("t").create()
        with pytest.raises(Conflict, match="need an object store"):
            await log.lake.load(
                LoadRequest(
                    topic="t", name="x", incarnation=1, parts=[PartitionLoad(partition=0, first=0, fingerprint="0a")]
                )
            )
