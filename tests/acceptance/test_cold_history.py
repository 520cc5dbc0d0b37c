"""Cold history: messages in the object store are read as if they were still hot (S3, S20, S22)."""

from __future__ import annotations

import io
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import lakelog
from lakelog.errors import Conflict, InvalidRequest, SegmentDamaged
from lakelog.model.lake import PlanOptions, RegisterStatus
from lakelog.model.segment import Segment
from lakelog.objectstore import open_store
from lakelog.segments.layout import segment_path
from lakelog.segments.reader import verify
from lakelog.segments.writer import SegmentWriter
from lakelog.storage.store import PartitionStore
from tests.acceptance.client_kit import ThreadServer
from tests.kit.waiting import eventually_async

NO_TIME = timedelta(0)
Row = tuple[int, bytes | None, bytes | None, datetime, dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class Place:
    """An empty installation and its object store. `cell` opens the store behind it, for maintenance."""

    url: str
    objects: str
    cell: Callable[[], AbstractAsyncContextManager[PartitionStore]]


@pytest.fixture(params=["postgresql", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    objects = (tmp_path / "objects").as_uri()
    if request.param == "postgresql":
        database: str = request.getfixturevalue("migrated_database")
        yield Place(url=database, objects=objects, cell=partial(_opened, database))
        return
    with ThreadServer(objects) as server:
        yield Place(url=server.url, objects=objects, cell=lambda: nullcontext(server.store))


@asynccontextmanager
async def _opened(database: str) -> AsyncIterator[PartitionStore]:
    from lakelog.storage.postgres import open_store as open_cell

    store = await open_cell(database)
    try:
        yield store
    finally:
        await store.close()


class Here:
    """An installation with a client."""

    def __init__(self, place: Place, log: lakelog.AsyncLakelog) -> None:
        self.log = log
        self.objects = open_store(place.objects)
        self._place = place

    def cell(self) -> AbstractAsyncContextManager[PartitionStore]:
        return self._place.cell()

    async def roll_and_drop(self) -> list[int]:
        async with self._place.cell() as store:
            await store.roll()
            return await store.rolls_drop(grace=NO_TIME)


@asynccontextmanager
async def installed(place: Place) -> AsyncIterator[Here]:
    store = None if place.url.startswith("http") else place.objects
    async with lakelog.connect_async(place.url, object_store=store, allow_not_durable=True) as log:
        yield Here(place, log)


async def write(here: Here, topic: str, partition: int, first: int, end: int) -> Segment:
    """Write the file of a segment, without registering it."""
    plan = await here.log.lake.plan(topic)
    sink = io.BytesIO()
    writer = SegmentWriter(sink, partition)
    async for batch in here.log.lake.read_range(topic, partition, first, end):
        writer.write(batch)
    sealed = writer.close()
    path = segment_path(plan.environment_id, plan.incarnation, partition, first, end)
    here.objects.put(path, sink.getvalue())
    return sealed.segment(path)


async def tier(here: Here, topic: str, **how: int) -> list[Segment]:
    """Create segments of all tierable ranges, and mark them as verified."""
    wished: dict[str, int] = {"segment_bytes": 1 << 30, "min_bytes": 0, **how}
    ranges = await here.log.lake.tierable(topic, min_age=NO_TIME, **wished)
    segments = [await write(here, topic, each.partition, each.first, each.end) for each in ranges]
    answers = await here.log.lake.register(topic, segments)
    assert [answer.status for answer in answers] == [RegisterStatus.REGISTERED] * len(segments), answers
    for segment in segments:
        verify(here.objects, segment)
    assert all(await here.log.lake.verified(topic, segments))
    return segments


async def fetched(log: lakelog.AsyncLakelog, topic: str, start: int = 0, limit: int = 7) -> list[Row]:
    rows: list[Row] = []
    while True:
        page = await log.topic(topic).fetch(offset=start, limit=limit)
        rows += [(each.offset, each.key, each.raw, each.appended_at, dict(each.headers)) for each in page.messages]
        if page.next_offset == page.high_watermark:
            return rows
        start = page.next_offset


async def publish(log: lakelog.AsyncLakelog, topic: str, count: int, *, times: int = 4) -> None:
    for turn in range(times):
        first = turn * count
        messages = [
            lakelog.Outgoing(f"v{first + n}", key=f"k{n % 5}", headers={"n": str(n)}, partition=0) for n in range(count)
        ]
        await log.topic(topic).publish_many(messages)


async def test_history_reads_the_same_after_its_hot_tables_are_gone(place: Place) -> None:
    """S3, S20: offsets, keys, values, headers and times of every message are unchanged."""
    async with installed(place) as here:
        log = here.log
        await log.topic("t").create()
        await publish(log, "t", 25)
        before = await fetched(log, "t")
        segments = await tier(here, "t", segment_bytes=400)
        assert len(segments) > 1
        assert await here.roll_and_drop() != []
        await publish(log, "t", 5, times=1)
        after = await fetched(log, "t")
        assert after[:100] == before
        assert [row[0] for row in after] == list(range(105))
        assert [row[0] for row in await fetched(log, "t", start=33, limit=1000)] == list(range(33, 105))
        ranged = [batch async for batch in log.lake.read_range("t", 0, 17, 103)]
        assert [offset for batch in ranged for offset in batch.column("offset").to_pylist()] == list(range(17, 103))
        seen = [message.offset async for message in log.topic("t").read()]
        assert seen == list(range(105))


async def test_a_plan_names_the_segments_and_where_hot_batches_begin(place: Place) -> None:
    """S22: a time range is cut exactly, even inside a segment."""
    async with installed(place) as here:
        log = here.log
        await log.topic("t").create()
        await publish(log, "t", 25)
        times = [row[3] for row in await fetched(log, "t")]
        (segment,) = await tier(here, "t")
        await here.roll_and_drop()
        await publish(log, "t", 5, times=1)
        (one,) = (await log.lake.plan("t")).partitions
        assert (one.start, one.end, one.segments, one.hot_from) == (0, 105, (segment,), 100)
        (one,) = (await log.lake.plan("t", PlanOptions(starts={0: 40}, ends={0: 60}))).partitions
        assert (one.start, one.end, one.segments, one.hot_from) == (40, 60, (segment,), 60)
        (one,) = (await log.lake.plan("t", PlanOptions(since=times[50], until=times[75]))).partitions
        assert (one.start, one.end) == (times.index(times[50]), times.index(times[75]))
        (one,) = (await log.lake.plan("t", PlanOptions(starts={0: 100}))).partitions
        assert (one.segments, one.hot_from) == ((), 100)
        assert (await log.lake.plan("t")).store == place.objects
        page = await log.topic("t").fetch(time=times[50])
        assert page.messages[0].offset == times.index(times[50])


async def test_a_group_works_through_cold_history(place: Place) -> None:
    """S20: leases, dead letters, lag and seeks by time work as over hot batches."""
    async with installed(place) as here:
        log = here.log
        topic = log.topic("t")
        await topic.create()
        await publish(log, "t", 25)
        times = [row[3] for row in await fetched(log, "t")]
        await tier(here, "t", segment_bytes=400)
        await here.roll_and_drop()
        seen: list[tuple[int, str]] = []

        @topic.subscribe(group="g", start_from="earliest", retries=0, concurrency=4)
        async def handle(value: str, delivery: lakelog.AsyncDelivery[str]) -> None:
            seen.append((delivery.offset, value))
            if delivery.offset == 42:
                raise ValueError("no")

        await log.start()
        await eventually_async(lambda: len(seen) == 100)
        await eventually_async(partial(_has_dead, topic))  # type: ignore[arg-type]
        assert sorted(seen) == [(n, f"v{n}") for n in range(100)]
        (letter,) = await topic.dead_letters("g").list()
        assert (letter.offset, letter.raw) == (42, b"v42")
        await log.stop()
        (moved,) = await topic.seek("g", to=times[50])
        assert moved.after == times.index(times[50])
        assert await topic.lag("g") == 100 - moved.after


async def _has_dead(topic: lakelog.AsyncTopic[Any]) -> bool:
    return bool(await topic.dead_letters("g").list())


async def test_an_unverified_segment_is_never_read(place: Place) -> None:
    """S20: until a file is verified, readers use the hot batches, which stay."""
    async with installed(place) as here:
        log = here.log
        await log.topic("t").create()
        await publish(log, "t", 25)
        before = await fetched(log, "t")
        segment = await write(here, "t", 0, 0, 100)
        (answer,) = await log.lake.register("t", [segment])
        assert answer.status is RegisterStatus.REGISTERED
        here.objects.delete(segment.path)
        assert await here.roll_and_drop() == []
        assert await fetched(log, "t") == before
        (one,) = (await log.lake.plan("t")).partitions
        assert (one.segments, one.hot_from) == ((), 0)
        assert await log.lake.unverified("t") == [segment]
        assert await log.lake.tierable("t", min_bytes=0, min_age=0) == []
        assert await log.lake.unregister("t", [segment]) == [True]
        assert [(each.first, each.end) for each in await log.lake.tierable("t", min_bytes=0, min_age=0)] == [(0, 100)]


async def test_a_repeated_registration_is_known_and_a_conflicting_one_is_taken(place: Place) -> None:
    async with installed(place) as here:
        log = here.log
        await log.topic("t").create()
        await publish(log, "t", 25)
        segment = await write(here, "t", 0, 0, 100)
        rival = await write(here, "t", 0, 0, 100)
        assert [each.status for each in await log.lake.register("t", [segment])] == [RegisterStatus.REGISTERED]
        answers = await log.lake.register("t", [segment, rival])
        assert [each.status for each in answers] == [RegisterStatus.KNOWN, RegisterStatus.TAKEN]
        assert answers[1].reason == "The segment overlaps another segment."


async def test_segments_of_a_deleted_topic_do_not_meet_its_successor(place: Place) -> None:
    """S22."""
    async with installed(place) as here:
        log = here.log
        await log.topic("t").create()
        await publish(log, "t", 25)
        old = await write(here, "t", 0, 0, 100)
        await log.topic("t").delete()
        await log.topic("t").create()
        await publish(log, "t", 25)
        (answer,) = await log.lake.register("t", [old])
        assert (answer.status, answer.reason) == (RegisterStatus.TAKEN, "The topic was deleted.")
        (one,) = (await log.lake.plan("t")).partitions
        assert one.segments == ()


async def test_only_files_of_the_caller_are_registered_and_swept(place: Place) -> None:
    async with installed(place) as here:
        log = here.log
        await log.topic("t").create()
        await publish(log, "t", 5)
        segment = await write(here, "t", 0, 0, 20)
        with pytest.raises(InvalidRequest):
            await log.lake.register("t", [replace(segment, path=segment.path.replace("e1/", "e2/"))])
        with pytest.raises(InvalidRequest):
            await log.lake.register("t", [replace(segment, path="anything.parquet")])
        with pytest.raises(InvalidRequest):
            await log.lake.look(["e2/x"])


async def test_without_an_object_store_registering_says_what_to_set(place: Place, http_server: ThreadServer) -> None:
    async with installed(place) as here, lakelog.connect_async(http_server.url) as bare:
        await here.log.topic("t").create()
        await publish(here.log, "t", 5)
        await bare.topic("t").create()
        segment = await write(here, "t", 0, 0, 20)
        with pytest.raises(Conflict, match="LAKELOG_OBJECT_STORE"):
            await bare.lake.register("t", [segment])


async def test_a_damaged_file_is_an_error_and_never_other_messages(place: Place) -> None:
    """S3."""
    async with installed(place) as here:
        log = here.log
        await log.topic("t").create()
        await publish(log, "t", 25)
        (segment,) = await tier(here, "t")
        await here.roll_and_drop()
        here.objects.delete(segment.path)
        with pytest.raises(SegmentDamaged):
            await log.topic("t").fetch(offset=3)


async def test_orphans_are_removed_after_two_looks(place: Place) -> None:
    async with installed(place) as here:
        log = here.log
        await log.topic("t").create()
        await publish(log, "t", 25)
        known = await write(here, "t", 0, 0, 100)
        await log.lake.register("t", [known])
        orphan = f"e1/t1/p00000/{secrets.token_hex(4)}"
        assert await log.lake.look([known.path, orphan]) == []
        assert await log.lake.look([known.path, orphan], min_age=3600) == []
        assert await log.lake.look([known.path, orphan], min_age=0) == [orphan]
        await log.lake.swept([orphan])
        assert await log.lake.look([orphan], min_age=3600) == []
