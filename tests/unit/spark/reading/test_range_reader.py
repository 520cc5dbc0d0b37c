"""A task reads its piece whole, or fails: when files went, are others, or when the server skips (S21, S22)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from lakelog.client.reading.read_ranges import ReadRange
from lakelog.errors import LakelogError, OffsetOutOfRange, SegmentDamaged, Unavailable
from lakelog.model.lake import PartitionPlan, Plan, PlanOptions
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.writer import SegmentWriter
from lakelog.spark.reading import range_reader as piece_reader
from lakelog.spark.reading.range_reader import ReadTarget, read_piece
from lakelog.spark.session import ConnectionSettings

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def batch(first: int, end: int) -> pa.RecordBatch:
    count = end - first
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, end), pa.int64()),
            "appended_at": pa.array([_AT] * count, pa.timestamp("us", tz="UTC")),
            "epoch": pa.array([0] * count, pa.int32()),
            "value": pa.array([b"%d" % n for n in range(first, end)], pa.binary()),
        }
    )


class Log:
    """What a task sees of the server: it plans as it is told, and has every offset from `log_start` up to `head`."""

    def __init__(self, *segments: Segment, log_start: int = 0, head: int = 100) -> None:
        self.segments, self.log_start, self.head = segments, log_start, head
        self.asked: list[tuple[int, int]] = []

    @property
    def lake(self) -> Log:
        return self

    def plan(self, topic: str, wish: PlanOptions) -> Plan:
        assert wish.incarnation == 7 and wish.starts and wish.ends
        start, end = wish.starts[0], wish.ends[0]
        self.asked.append((start, end))
        cold = tuple(one for one in self.segments if one.end > start and one.first < end)
        hot_from = max([start, *(one.end for one in cold)])
        found = PartitionPlan(
            partition=0,
            log_start=self.log_start,
            high_watermark=self.head,
            start=max(start, self.log_start),
            end=end,
            segments=cold,
            hot_from=min(hot_from, end),
        )
        return Plan(topic=topic, incarnation=7, epoch=0, environment_id=1, store=None, partitions=(found,))

    def read_range(
        self, topic: str, partition: int, first: int, end: int, *, incarnation: int
    ) -> Iterator[pa.RecordBatch]:
        assert (topic, partition, incarnation) == ("t", 0, 7)
        yield batch(first, end)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}")


def sealed(store: ObjectStore, first: int, end: int, name: str) -> Segment:
    sink = pa.BufferOutputStream()
    with SegmentWriter(sink, 0) as writer:
        writer.write(batch(first, end))
        done = writer.close()
    store.put(name, sink.getvalue().to_pybytes())
    return done.segment(name)


def read(monkeypatch: pytest.MonkeyPatch, store: ObjectStore, log: Log, read_range: ReadRange) -> list[int]:
    monkeypatch.setattr(piece_reader, "client", lambda _: log)
    place = ReadTarget(connection=ConnectionSettings(url="http://x"), topic="t", incarnation=7, store=store.url)
    return [offset for found in read_piece(place, read_range) for offset in found.column("offset").to_pylist()]


def test_a_part_of_a_segment(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    segment = sealed(store, 10, 50, "a")
    read_range = ReadRange(partition=0, first=20, end=30, segment=segment)
    assert read(monkeypatch, store, Log(), read_range) == list(range(20, 30))


def test_a_file_that_was_replaced_is_planned_again(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    old = sealed(store, 0, 50, "old")
    store.delete("old")
    log = Log(sealed(store, 0, 20, "a"), sealed(store, 20, 40, "b"))
    assert read(monkeypatch, store, log, ReadRange(partition=0, first=5, end=50, segment=old)) == list(range(5, 50))
    assert log.asked == [(5, 50)]


def test_a_file_that_goes_while_it_is_read_is_planned_again(
    monkeypatch: pytest.MonkeyPatch, store: ObjectStore
) -> None:
    """The rest only: what was read already is not read twice."""
    old, new = sealed(store, 0, 50, "old"), sealed(store, 0, 50, "new")
    log = Log(new)
    whole = piece_reader._batches

    def breaks_off(place: ReadTarget, read_range: ReadRange) -> Iterator[pa.RecordBatch]:
        if read_range.segment == old:
            yield batch(0, 30)
            store.delete("old")
            read_range = replace(read_range, first=30)
        yield from whole(place, read_range)

    monkeypatch.setattr(piece_reader, "_batches", breaks_off)
    assert read(monkeypatch, store, log, ReadRange(partition=0, first=0, end=50, segment=old)) == list(range(50))
    assert log.asked == [(30, 50)]


def test_a_file_that_nobody_replaced_is_an_error(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    segment = sealed(store, 0, 50, "a")
    store.delete("a")
    with pytest.raises(Unavailable, match="the same object store"):
        read(monkeypatch, store, Log(segment), ReadRange(partition=0, first=0, end=50, segment=segment))


def test_what_retention_took_is_an_error_and_no_short_read(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    segment = sealed(store, 0, 50, "a")
    store.delete("a")
    log = Log(log_start=20)
    with pytest.raises(OffsetOutOfRange, match="holds offsets 20 up to"):
        read(monkeypatch, store, log, ReadRange(partition=0, first=0, end=50, segment=segment))


def test_another_file_of_the_same_name_is_damage(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    segment = sealed(store, 0, 50, "a")
    store.delete("a")
    sealed(store, 0, 40, "a")
    with pytest.raises(SegmentDamaged):
        read(monkeypatch, store, Log(), ReadRange(partition=0, first=0, end=50, segment=segment))


def test_a_server_that_skips_is_noticed(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    log = Log()
    monkeypatch.setattr(log, "read_range", lambda *_, **__: iter([batch(0, 10), batch(11, 20)]))
    with pytest.raises(LakelogError, match="but offset 10 should follow"):
        read(monkeypatch, store, log, ReadRange(partition=0, first=0, end=20))
