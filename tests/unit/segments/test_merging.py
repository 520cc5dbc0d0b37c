"""Adjacent segments become one file per day with the same messages, or none if anything differs (S3, S20)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from lakelog.errors import ObjectNotFound, SegmentDamaged
from lakelog.model.segment import SealedSegment, Segment
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.hashing import ContentHash
from lakelog.segments.merging import PartHashes, merge, verify_merged
from lakelog.segments.reader import SegmentFile
from tests.unit.segments.samples import PARTITION, positioned, sealed

ROWS = 90


def put_into(store: ObjectStore) -> Callable[[SealedSegment, Path], Segment]:
    def put(made: SealedSegment, file: Path) -> Segment:
        path = f"new/{made.first}-{secrets.token_hex(4)}"
        store.put(path, file)
        return made.segment(path)

    return put


def stored(store: ObjectStore, batch: pa.RecordBatch, *ends: int) -> list[Segment]:
    """Store the rows as adjacent segments that end at these offsets."""
    made, first = [], 0
    for end in ends:
        data, about = sealed([batch.slice(first, end - first)])
        store.put(f"old/{first}", data)
        made.append(about.segment(f"old/{first}"))
        first = end
    return made


def over_midnight(row: int) -> pa.RecordBatch:
    """Rows of two days: the second one begins with `row`."""
    batch = positioned(ROWS)
    number = batch.schema.get_field_index("appended_at")
    midnight = datetime(2026, 3, 1, tzinfo=UTC)
    times = [midnight + timedelta(seconds=n - row) for n in range(ROWS)]
    return batch.set_column(number, batch.schema.field(number), pa.array(times, batch.schema.field(number).type))


def rows_of(store: ObjectStore, segments: list[Segment]) -> pa.Table:
    batches = []
    for segment in segments:
        with SegmentFile(store.open_file(segment.path), segment) as file:
            batches += list(file.read())
    return pa.Table.from_batches(batches)


def test_one_file_has_all_messages() -> None:
    store, batch = open_store("memory://"), positioned(ROWS)
    old = stored(store, batch, 10, 40, 90)
    (new,) = merge(store, old, put_into(store))
    assert (new.first, new.end, new.first_at, new.last_at) == (0, ROWS, old[0].first_at, old[-1].last_at)
    assert (new.partition, new.epoch) == (PARTITION, old[-1].epoch)
    assert rows_of(store, [new]).equals(pa.Table.from_batches([batch.replace_schema_metadata(None)]))
    whole = ContentHash()
    whole.update(batch)
    assert new.content_hash == whole.hexdigest()
    verify_merged(store, old, [new])


@pytest.mark.parametrize("row", [1, 45, 60, 89])
def test_files_are_split_at_midnight(row: int) -> None:
    store, batch = open_store("memory://"), over_midnight(row)
    old = stored(store, batch, 30, 60, 90)
    new = merge(store, old, put_into(store))
    assert [(each.first, each.end) for each in new] == [(0, row), (row, ROWS)]
    assert [each.first_at.date() for each in new] == [each.last_at.date() for each in new]
    assert [each.first_at.date() for each in new] == [date(2026, 2, 28), date(2026, 3, 1)]
    verify_merged(store, old, new)


def test_an_old_file_that_differs_is_not_merged() -> None:
    store = open_store("memory://")
    old = stored(store, positioned(ROWS), 30, 90)
    data = bytearray(store.get(old[1].path))
    data[len(data) // 2] ^= 1
    store.delete(old[1].path)
    store.put(old[1].path, bytes(data))
    with pytest.raises(SegmentDamaged, match="old/30"):
        merge(store, old, put_into(store))
    store.delete(old[1].path)
    with pytest.raises(ObjectNotFound):
        merge(store, old, put_into(store))


def test_new_files_that_differ_are_found() -> None:
    store, batch = open_store("memory://"), positioned(ROWS)
    old = stored(store, batch, 30, 90)
    (new,) = merge(store, old, put_into(store))
    data, about = sealed([batch.slice(0, 80)])
    store.put("short", data)
    with pytest.raises(SegmentDamaged, match="from offset 80 on are missing"):
        verify_merged(store, old, [about.segment("short")])
    with pytest.raises(SegmentDamaged, match="belong to no segment"):
        verify_merged(store, old[:1], [new])
    other = replace(old[0], content_hash="0" * 64)
    with pytest.raises(SegmentDamaged, match="differ from those of old/0"):
        verify_merged(store, [other, old[1]], [new])
    with pytest.raises(SegmentDamaged, match="Offset 0 comes next"):
        PartHashes(old).update(batch.slice(5))
