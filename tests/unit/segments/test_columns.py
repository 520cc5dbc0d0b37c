"""Files with other columns than this version writes: missing ones are null, unknown ones must be marked as optional."""

from __future__ import annotations

import hashlib
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from lakelog.errors import SegmentDamaged, UnsupportedFormat
from lakelog.model.segment import Segment
from lakelog.objectstore import open_store
from lakelog.segments.hashing import ContentHash
from lakelog.segments.merging import merge
from lakelog.segments.reader import SegmentFile, verify
from lakelog.segments.schema import SCHEMA
from lakelog.segments.writer import CONTENT_KEY, FORMAT_KEY, OPTIONAL_KEY, PARTITION_KEY
from tests.unit.segments.samples import PARTITION, positioned, sealed

BATCH = positioned(20, base=100)
DATA, SEALED = sealed([BATCH])


def rewritten(table: pa.Table, optional: str | None = None) -> tuple[bytes, Segment]:
    """Return a file with this table and the footer of a segment, as another version would write it."""
    content = ContentHash(table.schema)
    for batch in table.combine_chunks().to_batches():
        content.update(batch)
    footer = {FORMAT_KEY: "1", PARTITION_KEY: str(PARTITION), CONTENT_KEY: content.hexdigest()}
    if optional is not None:
        footer[OPTIONAL_KEY] = optional
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as parquet:
        parquet.write_table(table)
        parquet.add_key_value_metadata(footer)
    data = sink.getvalue()
    segment = replace(
        SEALED.segment("one.parquet"),
        bytes=len(data),
        file_hash=hashlib.sha256(data).hexdigest(),
        content_hash=content.hexdigest(),
    )
    return data, segment


def check(data: bytes, segment: Segment) -> None:
    store = open_store("memory://")
    store.put(segment.path, data)
    verify(store, segment)


def with_color(table: pa.Table) -> pa.Table:
    return table.append_column(pa.field("color", pa.string()), pa.array(["red"] * table.num_rows))


def test_a_missing_column_is_null() -> None:
    table = pa.Table.from_batches([BATCH]).drop_columns(["origin", "headers"])
    data, segment = rewritten(table)
    check(data, segment)
    file = SegmentFile(io.BytesIO(data), segment)
    (found,) = file.read()
    assert found.schema.equals(SCHEMA)
    assert found.column("headers").null_count == 20 and found.column("value").equals(BATCH.column("value"))
    (found,) = file.read(columns=["headers", "key"])
    assert found.schema.names == ["key", "headers"] and found.num_rows == 20
    (found,) = file.read(103, 105, columns=["origin"])
    assert found.column("origin").to_pylist() == [None, None]


def test_an_unknown_column_that_is_marked_as_optional_is_left_out() -> None:
    table = with_color(pa.Table.from_batches([BATCH]))
    data, segment = rewritten(table, "size,color")
    check(data, segment)
    (found,) = SegmentFile(io.BytesIO(data), segment).read()
    assert found.equals(BATCH)


@pytest.mark.parametrize("optional", [None, "", "size"])
def test_an_unknown_column_that_is_not_marked_is_refused(optional: str | None) -> None:
    data, segment = rewritten(with_color(pa.Table.from_batches([BATCH])), optional)
    with pytest.raises(UnsupportedFormat, match="'color'"):
        SegmentFile(io.BytesIO(data), segment)


def test_a_file_with_an_unknown_column_is_not_compacted() -> None:
    """The new file would lack the column."""
    data, segment = rewritten(with_color(pa.Table.from_batches([BATCH])), "color")
    store = open_store("memory://")
    store.put(segment.path, data)
    with pytest.raises(UnsupportedFormat, match="column 'color'"):
        merge(store, [segment], lambda made, file: made.segment("new"))


def test_the_content_of_an_unknown_column_is_verified() -> None:
    data, segment = rewritten(with_color(pa.Table.from_batches([BATCH])), "color")
    wrong = replace(segment, content_hash=SEALED.content_hash)
    with pytest.raises(SegmentDamaged):
        check(data, wrong)


def test_a_known_column_of_another_type_and_a_file_without_positions_are_refused() -> None:
    table = pa.Table.from_batches([BATCH])
    number = table.schema.get_field_index("content_type")
    typed = table.set_column(number, "content_type", pa.array([1] * 20, pa.int32()))
    nullable = SCHEMA.field("offset").with_nullable(False)
    strict = table.set_column(1, nullable, BATCH.column("offset"))
    for other in (typed, strict, table.drop_columns(["epoch"]), table.select([1, 0, *range(2, table.num_columns)])):
        data, segment = rewritten(other, "content_type,epoch")
        with pytest.raises(SegmentDamaged, match="columns"):
            SegmentFile(io.BytesIO(data), segment)
