"""Segments written and read back: exactly the rows asked for, however they came and lie in the file."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Generator, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog import batches
from lakelog.errors import InvalidBatch, OffsetOutOfRange
from lakelog.model.segment import SealedSegment
from lakelog.objectstore import open_store
from lakelog.segments import writer
from lakelog.segments.layout import parse_segment_path, segment_path
from lakelog.segments.reader import SegmentFile, verify
from lakelog.segments.schema import SCHEMA, conform
from lakelog.segments.segment_batches import split_batches
from lakelog.segments.writer import SegmentWriter
from tests.unit.batches.samples import NOW, messages
from tests.unit.segments.samples import PARTITION, anything, cut, positioned, sealed


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GROUP_ROWS", 10)


def _rows(parts: list[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for part in parts for row in part.to_pylist()]


@given(anything(), st.lists(st.integers(0, 40), max_size=4))
def test_what_was_written_is_read(batch: pa.RecordBatch, cuts: list[int]) -> None:
    data, about = sealed(cut(batch, cuts))
    file = SegmentFile(io.BytesIO(data))
    assert _rows(list(file.read())) == batch.to_pylist()
    assert (about.first, about.end, about.bytes) == (5, 5 + batch.num_rows, len(data))
    assert (file.first, file.end, file.rows) == (about.first, about.end, batch.num_rows)
    assert about.epoch == batch.column("epoch")[-1].as_py()


@pytest.mark.usefixtures("small_groups")
def test_exactly_the_offsets_asked_for_s22() -> None:
    batch = positioned(47, base=1000)
    data, _ = sealed(cut(batch, [3, 8, 30]))
    file = SegmentFile(io.BytesIO(data))
    for first in range(1000, 1048):
        for end in range(first, 1048):
            got = pa.Table.from_batches(list(file.read(first, end, ["offset"])), pa.schema([SCHEMA.field("offset")]))
            assert got.column("offset").to_pylist() == list(range(first, end))
    assert _rows(list(file.read(1013, 1029))) == batch.slice(13, 16).to_pylist()


@pytest.mark.usefixtures("small_groups")
def test_only_needed_row_groups_are_touched() -> None:
    data, _ = sealed([positioned(100)])
    counting = _CountingFile(data)
    file = SegmentFile(counting)
    assert pq.ParquetFile(io.BytesIO(data)).metadata.num_row_groups == 10
    counting.spans.clear()
    assert [part.num_rows for part in file.read(55, 57)] == [2]
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(5)
    start = min(group.column(n).dictionary_page_offset or group.column(n).data_page_offset for n in range(20))
    end = start + sum(group.column(n).total_compressed_size for n in range(group.num_columns))
    assert counting.spans and all(start <= a and b <= end for a, b in counting.spans)


def test_offsets_outside_are_refused() -> None:
    file = SegmentFile(io.BytesIO(sealed([positioned(10, base=5)])[0]))
    for first, end in ((4, 6), (5, 16)):
        with pytest.raises(OffsetOutOfRange):
            list(file.read(first, end))


@pytest.mark.usefixtures("small_groups")
def test_offset_at_time() -> None:
    """`positioned` moves the time on by a second every 7 messages."""
    file = SegmentFile(io.BytesIO(sealed([positioned(47, base=100)])[0]))
    assert file.offset_at_time(NOW - timedelta(days=1)) == 100
    for seconds in range(7):
        assert file.offset_at_time(NOW + timedelta(seconds=seconds)) == 100 + 7 * seconds
        just_after = NOW + timedelta(seconds=seconds, microseconds=1)
        assert file.offset_at_time(just_after) == min(147, 107 + 7 * seconds)


def test_fetched_columns_with_an_epoch_will_do() -> None:
    """Columns are found by name and cast; what lacks is null."""
    fetched = batches.with_positions(batches.from_messages(messages(20)), PARTITION, 0, NOW)
    epochs = pa.array([1] * 20, pa.int64())
    wide = fetched.append_column("epoch", epochs).drop_columns(["origin"])
    number = wide.schema.get_field_index("producer")
    wide = wide.set_column(number, "producer", pa.array([b"p" * 16] * 20, pa.binary()))
    rows = _rows(list(SegmentFile(io.BytesIO(sealed([wide])[0])).read()))
    assert [row["offset"] for row in rows] == list(range(20))
    assert {(row["epoch"], row["producer"], row["origin"]) for row in rows} == {(1, b"p" * 16, None)}


def _renumbered(batch: pa.RecordBatch, offsets: list[int | None]) -> pa.RecordBatch:
    number = batch.schema.get_field_index("offset")
    return batch.set_column(number, SCHEMA.field("offset"), pa.array(offsets, pa.int64()))


@pytest.mark.parametrize("offsets", [[1, 2, 4, 5], [1, 3, 3, 4], [4, 3, 2, 1], [1, 1, 2, 3], [1, 2, None, 4]])
def test_offsets_go_on_densely_s20(offsets: list[int | None]) -> None:
    with pytest.raises(InvalidBatch):
        sealed([_renumbered(positioned(4), offsets)])


@pytest.mark.parametrize("base", [0, 9, 11, 12])
def test_batches_go_on_where_the_last_ended_s20(base: int) -> None:
    with pytest.raises(InvalidBatch, match="10 comes next"):
        sealed([positioned(10), positioned(5, base=base)])


def test_another_partition_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="one partition"):
        writer = SegmentWriter(io.BytesIO(), PARTITION + 1)
        writer.write(positioned(3))
        writer.close()


def test_no_segment_without_messages() -> None:
    with pytest.raises(InvalidBatch):
        sealed([])


def test_a_file_without_close_is_none(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path / "one", PARTITION) as writer:
        writer.write(positioned(5))
    with pytest.raises(pa.ArrowInvalid):
        pq.ParquetFile(tmp_path / "one")


def test_row_groups_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GROUP_BYTES", 4 << 20)
    wide = positioned(12)
    number = wide.schema.get_field_index("value")
    wide = wide.set_column(number, SCHEMA.field("value"), pa.array([b"x" * (1 << 20)] * 12, pa.binary()))
    footer = pq.ParquetFile(io.BytesIO(sealed([wide])[0])).metadata
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [3, 3, 3, 3]


@pytest.mark.usefixtures("small_groups")
def test_the_first_offsets_of_the_row_groups_are_returned() -> None:
    _, about = sealed(cut(positioned(47, base=1000), [3, 8, 30]))
    data, _ = sealed(cut(positioned(47, base=1000), [3, 8, 30]))
    footer = pq.ParquetFile(io.BytesIO(data)).metadata
    starts = [footer.row_group(number).column(1).statistics.min for number in range(footer.num_row_groups)]
    assert about.groups == tuple(starts) and len(starts) > 4


def test_the_key_has_a_bloom_filter_of_the_size_of_its_keys() -> None:
    def filters(batch: pa.RecordBatch) -> list[int | None]:
        group = pq.ParquetFile(io.BytesIO(sealed([batch])[0])).metadata.row_group(0)
        return [group.column(number).bloom_filter_length for number in range(group.num_columns)]

    batch = positioned(1000)
    number = batch.schema.get_field_index("key")
    keys = pa.array([b"k%d" % n for n in range(1000)], pa.binary())
    found = filters(batch.set_column(number, SCHEMA.field("key"), keys))
    assert 500 < (found[number] or 0) < 3000 and not any(found[:number] + found[number + 1 :])
    empty = batch.set_column(number, SCHEMA.field("key"), pa.nulls(1000, pa.binary()))
    assert not any(filters(empty))


@pytest.mark.usefixtures("small_groups")
def test_the_next_row_group_is_read_while_the_caller_works() -> None:
    file = SegmentFile(io.BytesIO(sealed([positioned(40)])[0]))
    asked = []
    second = threading.Event()
    real = file._group

    def group(number: int, names: Sequence[str]) -> pa.RecordBatch:
        asked.append(number)
        if number == 1:
            second.set()
        return real(number, names)

    file._group = group  # type: ignore[method-assign]
    reading = file.read()
    next(reading)
    assert second.wait(10)
    assert asked == [0, 1], "one row group ahead, no more"
    assert [batch.num_rows for batch in reading] == [10] * 3
    # A caller that stops early leaves no thread.
    stopped = file.read()
    assert isinstance(stopped, Generator)
    next(stopped)
    stopped.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("segment")]


def test_a_file_of_the_layout_with_small_row_groups_is_read() -> None:
    folder = Path(__file__).parent
    data = (folder / "old_layout.parquet").read_bytes()
    segment = msgspec.json.decode((folder / "old_layout.json").read_bytes(), type=SealedSegment).segment("old.parquet")
    assert segment.groups == ()
    store = open_store("memory://")
    store.put(segment.path, data)
    verify(store, segment)
    with SegmentFile(io.BytesIO(data), segment) as file:
        assert _rows(list(file.read())) == positioned(60, base=100).to_pylist()
        assert file.group_at(125) == (120, 130)


def test_the_file_tells_what_others_need() -> None:
    """Field ids, statistics, sort order, format number: what Iceberg and native readers go by."""
    footer = pq.ParquetFile(io.BytesIO(sealed([positioned(30)])[0])).metadata
    group = footer.row_group(0)
    assert footer.metadata[b"lakelog.format"] == b"1"
    assert group.sorting_columns == (pq.SortingColumn(SCHEMA.get_field_index("offset")),)
    offset = group.column(1)
    assert (offset.path_in_schema, offset.statistics.min, offset.statistics.max) == ("offset", 0, 29)
    assert offset.has_offset_index and offset.has_column_index and offset.compression == "ZSTD"
    arrow = pq.ParquetFile(io.BytesIO(sealed([positioned(30)])[0])).schema_arrow
    ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in arrow}
    assert list(ids.values()) == [1, 2, 3, 4, *range(10, 10 + len(batches.COLUMNS))]
    assert arrow.field("headers").type.key_field.metadata[b"PARQUET:field_id"] == b"100"
    assert arrow.field("headers").type.item_field.metadata[b"PARQUET:field_id"] == b"101"


@given(anything(), st.integers(0, 40))
def test_runs_round_trip_through_hot_batches(batch: pa.RecordBatch, start: int) -> None:
    batch = batch.slice(start % batch.num_rows)
    found = split_batches(next(SegmentFile(io.BytesIO(sealed([batch])[0])).read()))
    back = []
    for run in found:
        decoded = batches.decode(batches.encode(run.batch))
        fetched = batches.with_positions(decoded, PARTITION, run.base, run.appended_at)
        back.append(conform(fetched.append_column("epoch", pa.array([run.epoch] * run.count, pa.int32()))))
    assert _rows(back) == batch.to_pylist()
    marks = [(run.appended_at, run.epoch) for run in found]
    assert all(one != two for one, two in itertools.pairwise(marks)), "runs are as long as can be"


def test_paths() -> None:
    path = segment_path(7, 12, 3, 100, 250)
    assert path.startswith("e7/t12/p00003/00000000000000000100-00000000000000000250-")
    parsed = parse_segment_path(path)
    assert parsed is not None
    assert segment_path(7, 12, 3, 100, 250, parsed.unique) == path
    assert segment_path(7, 12, 3, 100, 250) != path
    for other in ("", "a.parquet", path + "x", "x/" + path, path.replace("p00003", "p3")):
        assert parse_segment_path(other) is None


class _CountingFile(io.BytesIO):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.spans: list[tuple[int, int]] = []

    def read(self, count: int | None = -1, /) -> bytes:
        start = self.tell()
        data = super().read(count)
        self.spans.append((start, start + len(data)))
        return data
