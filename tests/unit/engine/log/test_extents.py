"""Extents: segments read as batches, in stretches, with few files open (S3, S20)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.batches import decode, encode, from_messages, rows, with_positions
from lakelog.engine.leasing import batch_cache as shelf_module
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.engine.log import extents as module
from lakelog.engine.log.extents import Extents
from lakelog.errors import ConfigurationError, OffsetOutOfRange, SegmentDamaged
from lakelog.model.message import Message, partition_id
from lakelog.model.segment import Segment
from lakelog.model.topic import Scope, Topic, TopicSettings
from lakelog.objectstore import open_store
from lakelog.segments import writer as segment_writer
from lakelog.segments.layout import segment_path
from lakelog.segments.reader import SegmentFile
from lakelog.segments.writer import SegmentWriter
from lakelog.storage.memory import MemoryStore
from lakelog.storage.store import Append, Appended, HotBatch, Payload, ReadResult
from tests.unit.engine.support import packed

PID = partition_id(1, 0)
TOPIC = Topic(
    incarnation=1,
    scope=Scope(project="p", environment="e", environment_id=1),
    name="t",
    epoch=0,
    cells=(0,),
    slot_cells=(0,),
    settings=TopicSettings(),
    created_at=datetime.now(UTC),
)
EVERYTHING = 1 << 30


class Cold:
    """A partition of which every batch is in a segment, and in no hot table."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        self.extents = Extents({0: self.store}, folder.as_uri())
        self.objects = open_store(folder.as_uri())
        self.segments: list[Segment] = []

    async def fill(self, *counts: int, per_segment: int = 1) -> None:
        await self.store.heads_create([PID], 0)
        for _ in counts[::per_segment]:
            batches = [await self._append(count) for count in counts[:per_segment]]
            counts = counts[per_segment:]
            self.segments.append(self._write(batches))
        await self.store.cold.register([(PID, each) for each in self.segments])
        await self.store.cold.verified([(PID, each) for each in self.segments])
        await self.store.roll()
        assert await self.store.rolls_drop(grace=timedelta(0)) != []

    async def _append(self, count: int) -> HotBatch:
        (head,) = await self.store.heads_read([PID])
        messages = [Message(value=b"v%d" % (head.next_offset + n), headers={"n": "1"}) for n in range(count)]
        payload = Payload(data=encode(from_messages(messages)), count=count)
        (answer,) = await self.store.append([Append(pid=PID, epoch=0, payloads=[payload])])
        assert isinstance(answer, Appended)
        return HotBatch(
            base=answer.base, count=count, appended_at=answer.appended_at, epoch=0, bytes_end=0, payload=payload.data
        )

    def _write(self, batches: Sequence[HotBatch]) -> Segment:
        sink = io.BytesIO()
        writer = SegmentWriter(sink, 0)
        for batch in batches:
            placed = with_positions(decode(batch.payload), 0, batch.base, batch.appended_at)
            writer.write(placed.append_column("epoch", pa.array([0] * batch.count, pa.int32())))
        sealed = writer.close()
        path = segment_path(1, 1, 0, sealed.first, sealed.end)
        self.objects.put(path, sink.getvalue())
        return sealed.segment(path)

    async def read(self, offset: int, messages: int = EVERYTHING, size: int = EVERYTHING) -> list[HotBatch]:
        read = await self.extents.read(self.store, PID, offset, max_messages=messages, max_bytes=size)
        assert read is not None and read.segment is None
        return list(read.batches)


def values(batches: Sequence[HotBatch]) -> list[bytes]:
    return [value for batch in batches for (value,) in rows(decode(batch.payload), ["value"])]


async def test_a_segment_comes_as_batches_with_the_times_of_before(tmp_path: Path) -> None:
    cold = Cold(tmp_path)
    await cold.fill(3, 4, 5, per_segment=2)
    first = await cold.read(0)
    assert values(first) == [b"v%d" % n for n in range(7)]
    assert first[0].appended_at == cold.segments[0].first_at
    assert first[-1].appended_at == cold.segments[0].last_at
    # A read may end where a segment ends, never before the offset that was asked for.
    assert values(await cold.read(7)) == [b"v%d" % n for n in range(7, 12)]
    assert values(await cold.read(5)) == [b"v%d" % n for n in range(3, 7)]
    await cold.extents.close()


async def test_reads_stop_at_the_batch_that_reaches_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_MESSAGES", 10)
    cold = Cold(tmp_path)
    await cold.fill(35)
    assert [each.count for each in await cold.read(0)] == [10, 10, 10, 5]
    assert [each.count for each in await cold.read(0, messages=11)] == [10, 10]
    assert [each.count for each in await cold.read(0, size=1)] == [10]
    assert [each.base for each in await cold.read(33, messages=1)] == [30]
    await cold.extents.close()


@pytest.fixture
def stretches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where each stretch begins that is read from a file."""
    monkeypatch.setattr(module, "_BATCH_MESSAGES", 10)
    monkeypatch.setattr(module, "_STRETCH_MESSAGES", 30)
    found: list[int] = []
    real = module._Opened._stretch

    def counted(opened: module._Opened, first: int, end: int) -> list[HotBatch]:
        found.append(first)
        return real(opened, first, end)

    monkeypatch.setattr(module._Opened, "_stretch", counted)
    return found


async def test_what_was_read_ahead_is_not_read_again(tmp_path: Path, stretches: list[int]) -> None:
    cold = Cold(tmp_path)
    await cold.fill(100)
    found = [batch for offset in range(0, 100, 10) for batch in await cold.read(offset, messages=10)]
    assert values(found) == [b"v%d" % n for n in range(100)]
    assert stretches == [0, 30, 60, 90]
    await cold.extents.close()


async def test_groups_at_different_places_of_a_file_do_not_read_it_again(tmp_path: Path, stretches: list[int]) -> None:
    cold = Cold(tmp_path)
    await cold.fill(100)
    for offset in range(0, 30, 10):
        for place in (0, 30, 60):
            assert values(await cold.read(place + offset, messages=10))[0] == b"v%d" % (place + offset)
    assert stretches == [0, 30, 60]
    await cold.extents.close()


async def test_stretches_are_kept_up_to_so_many_bytes(
    tmp_path: Path, stretches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cold = Cold(tmp_path)
    await cold.fill(100)
    monkeypatch.setattr(module, "KEPT_BYTES", sum(len(each.payload) for each in await cold.read(0, messages=60)))
    for place in (0, 30, 0, 60, 0, 30):
        await cold.read(place, messages=10)
    assert stretches == [0, 30, 60, 30]
    assert cold.extents._kept._bytes <= module.KEPT_BYTES
    await cold.extents.close()


async def test_a_row_group_is_decoded_once_for_all_its_ranges(
    tmp_path: Path, stretches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "GROUP_ROWS", 60)
    decoded = []
    real = SegmentFile._group

    def counted(file: SegmentFile, number: int, names: Sequence[str]) -> pa.RecordBatch:
        decoded.append(number)
        return real(file, number, names)

    monkeypatch.setattr(SegmentFile, "_group", counted)
    cold = Cold(tmp_path)
    await cold.fill(100)
    found = [batch for offset in range(0, 100, 10) for batch in await cold.read(offset, messages=10)]
    assert values(found) == [b"v%d" % n for n in range(100)]
    assert (stretches, decoded) == ([0, 30, 60, 90], [0, 1])
    monkeypatch.setattr(module, "KEPT_GROUP_BYTES", 1)
    monkeypatch.setattr(module, "KEPT_BYTES", 1)
    cold.extents.drop(0)
    for offset in (0, 60, 70, 0):
        await cold.read(offset, messages=10)
    assert decoded[2:] == [0, 1, 0], "without room, only the last row group is kept"
    await cold.extents.close()


async def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_FILES", 2)
    cold = Cold(tmp_path)
    await cold.fill(*[2] * 6)
    for _ in range(2):
        assert [values(await cold.read(offset)) for offset in range(0, 12, 2)] == [
            [b"v%d" % offset, b"v%d" % (offset + 1)] for offset in range(0, 12, 2)
        ]
        assert len(cold.extents._open) == 2
    await cold.extents.close()


async def test_many_are_read_at_once_and_refusals_are_answered(tmp_path: Path) -> None:
    cold = Cold(tmp_path)
    await cold.fill(4)
    hot = partition_id(2, 0)
    await cold.store.heads_create([hot], 0)
    asks = [(PID, 1), (hot, 9), (partition_id(3, 0), 0)]
    read, refusal, missing = await cold.extents.read_many(cold.store, asks, max_messages=9, max_bytes=EVERYTHING)
    assert isinstance(read, ReadResult)
    assert values(read.batches) == [b"v0", b"v1", b"v2", b"v3"]
    assert isinstance(refusal, OffsetOutOfRange) and missing is None
    await cold.extents.close()


async def test_S24_a_damaged_file_is_an_error_of_its_own_partition(tmp_path: Path) -> None:
    cold = Cold(tmp_path)
    await cold.fill(4)
    cold.objects.delete(cold.segments[0].path)
    hot = partition_id(2, 0)
    await cold.store.heads_create([hot], 0)
    await cold.store.append([Append(pid=hot, epoch=0, payloads=[packed("v")])])
    limits = {"max_messages": 9, "max_bytes": EVERYTHING}
    damaged, sound = await cold.extents.read_many(cold.store, [(PID, 1), (hot, 0)], **limits)
    assert isinstance(damaged, SegmentDamaged) and isinstance(sound, ReadResult) and len(sound.batches) == 1
    await cold.extents.close()


async def test_a_time_inside_of_a_segment_is_found_exactly(tmp_path: Path) -> None:
    """S22."""
    cold = Cold(tmp_path)
    await cold.fill(3, 3, 3, per_segment=3)
    times = {batch.base: batch.appended_at for batch in await cold.read(0)}
    for base, time in times.items():
        assert await cold.extents.offset_at_time(cold.store, PID, time) == base
    await cold.store.log_start_raise([(PID, 4)])
    assert await cold.extents.offset_at_time(cold.store, PID, times[0]) == 4
    await cold.extents.close()


async def test_a_missing_file_is_damage_unless_the_log_start_went_past_it(tmp_path: Path) -> None:
    """S3."""
    cold = Cold(tmp_path)
    await cold.fill(3)
    cold.objects.delete(cold.segments[0].path)
    with pytest.raises(SegmentDamaged):
        await cold.read(0)
    await cold.extents.close()


async def test_another_file_in_its_place_is_damage(tmp_path: Path) -> None:
    """S3."""
    cold = Cold(tmp_path)
    await cold.fill(3, 3)
    one, other = cold.segments
    data = cold.objects.get(other.path)
    cold.objects.delete(one.path)
    cold.objects.put(one.path, data)
    with pytest.raises(SegmentDamaged):
        await cold.read(0)
    await cold.extents.close()


async def test_a_file_that_is_too_short_is_damage(tmp_path: Path) -> None:
    """S3: asking again would not help."""
    cold = Cold(tmp_path)
    await cold.fill(3)
    [segment] = cold.segments
    data = cold.objects.get(segment.path)
    cold.objects.delete(segment.path)
    cold.objects.put(segment.path, data[:-9])
    with pytest.raises(SegmentDamaged):
        await cold.read(0)
    await cold.extents.close()


def break_row_group(cold: Cold, number: int) -> bytes:
    """Damages one row group of the first segment; the file's bytes before."""
    path = cold.segments[0].path
    data = cold.objects.get(path)
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(number).column(0)
    at = column.data_page_offset
    cold.objects.delete(path)
    cold.objects.put(path, data[:at] + bytes(8) + data[at + 8 :])
    return data


async def test_damage_of_a_row_group_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S3: the error has the offsets that cannot be read; only this process's own log has the path."""
    monkeypatch.setattr(segment_writer, "GROUP_ROWS", 10)
    cold = Cold(tmp_path)
    await cold.fill(30)
    break_row_group(cold, 1)
    assert values(await cold.read(0)) == [b"v%d" % n for n in range(10)], "up to the damage"
    for offset in (10, 19):
        with pytest.raises(SegmentDamaged) as refused:
            await cold.read(offset)
        assert refused.value.subject == {"partition": 0, "first_offset": 10, "end_offset": 20}
        assert refused.value.detail.startswith("Offsets 10 to 19 of partition 0 cannot be read")
    assert values(await cold.read(20)) == [b"v%d" % n for n in range(20, 30)]
    assert [cold.segments[0].path in line for line in caplog.messages] == [True], "once, not at every read"
    await cold.extents.close()


async def test_a_missing_file_names_all_offsets_of_its_segment(tmp_path: Path) -> None:
    cold = Cold(tmp_path)
    await cold.fill(3, 4)
    cold.objects.delete(cold.segments[1].path)
    with pytest.raises(SegmentDamaged) as refused:
        await cold.read(5)
    assert refused.value.subject == {"partition": 0, "first_offset": 3, "end_offset": 7}
    await cold.extents.close()


async def test_a_file_that_was_restored_is_read_again(tmp_path: Path) -> None:
    cold = Cold(tmp_path)
    await cold.fill(3)
    data = break_row_group(cold, 0)
    with pytest.raises(SegmentDamaged):
        await cold.read(0)
    cold.objects.delete(cold.segments[0].path)
    cold.objects.put(cold.segments[0].path, data)
    assert values(await cold.read(0)) == [b"v0", b"v1", b"v2"]
    await cold.extents.close()


async def test_without_a_url_cold_history_says_what_to_set(tmp_path: Path) -> None:
    cold = Cold(tmp_path)
    await cold.fill(3)
    with pytest.raises(ConfigurationError, match="LAKELOG_OBJECT_STORE"):
        await Extents({0: cold.store}).read(cold.store, PID, 0, max_messages=1, max_bytes=1)


async def test_batches_are_cut_alike_wherever_reading_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_MESSAGES", 7)
    monkeypatch.setattr(module, "_STRETCH_MESSAGES", 20)
    cold = Cold(tmp_path)
    await cold.fill(33, 40, per_segment=2)
    cuts = {(each.base, each.end) for each in await cold.read(0)}
    for offset in (72, 5, 40, 19, 33, 20, 66, 1):
        (batch,) = await cold.read(offset, messages=1)
        assert batch.base <= offset < batch.end
        assert (batch.base, batch.end) in cuts
    await cold.extents.close()


async def test_a_shelf_goes_on_where_messages_are_cut_otherwise_than_when_hot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches of one commit are one in the segment, and the first is on the shelf already."""
    monkeypatch.setattr(shelf_module, "READ_MESSAGES", 1)
    cold = Cold(tmp_path)
    await cold.store.heads_create([PID], 0)
    payloads = [Payload(data=encode(from_messages([Message(value=b"v")] * 3)), count=3) for _ in range(2)]
    (answer,) = await cold.store.append([Append(pid=PID, epoch=0, payloads=payloads)])
    assert isinstance(answer, Appended)
    batch_cache = BatchCache(cold.extents)
    await batch_cache.fill(TOPIC, {0: 0})
    assert [(each.hot.base, each.hot.end) for each in batch_cache.row(PID).batches] == [(0, 3)]
    hot = [
        HotBatch(base=base, count=3, appended_at=answer.appended_at, epoch=0, bytes_end=0, payload=payload.data)
        for base, payload in zip((0, 3), payloads, strict=True)
    ]
    cold.segments.append(cold._write(hot))
    await cold.fill()
    await batch_cache.fill(TOPIC, {0: 3})
    assert batch_cache.row(PID).at(3) is not None
    assert [(each.hot.base, each.hot.end) for each in batch_cache.row(PID).batches] == [(0, 6)]
    assert batch_cache._size == sum(each.size for each in batch_cache.row(PID).batches)
    await cold.extents.close()


async def test_files_are_read_again_after_a_drop(tmp_path: Path, stretches: list[int]) -> None:
    cold = Cold(tmp_path)
    await cold.fill(10)
    for _ in range(2):
        await cold.read(0)
    assert stretches == [0]
    cold.extents.drop(0)
    assert len(cold.extents._open) == 0
    assert values(await cold.read(0)) == [b"v%d" % n for n in range(10)] and stretches == [0, 0]
    assert cold.extents._unused == []
    await cold.extents.close()
