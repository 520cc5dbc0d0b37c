"""Files with typed columns of values: messages, hashes and reads are those of files without them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.errors import SegmentDamaged
from lakelog.model.columns import TopicColumns, widened
from lakelog.model.segment import SealedSegment, Segment
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.layout import columns_of_file, parse_segment_path, segment_path
from lakelog.segments.merging import merge, verify_merged
from lakelog.segments.reader import SegmentFile, verify
from lakelog.segments.schema import SCHEMA
from lakelog.segments.writer import SegmentWriter
from tests.unit.segments.samples import PARTITION, positioned

ROWS = 50
SCHEMA_OF_VALUES = {
    "properties": {
        "n": {"type": "integer"},
        "at": {"properties": {"city": {"type": "string"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
}
COLUMNS = widened(None, SCHEMA_OF_VALUES)
BROKEN = 7
"""The row whose value is not JSON."""


def messages() -> pa.RecordBatch:
    batch = positioned(ROWS)
    values = [json.dumps({"n": n, "at": {"city": f"c{n}"}, "tags": ["a"], "counts": {"b": n}}) for n in range(ROWS)]
    values[BROKEN] = "{"
    number = batch.schema.get_field_index("value")
    column = pa.array([value.encode() for value in values])
    return batch.set_column(number, batch.schema.field(number), column)


def sealed(batch: pa.RecordBatch, columns: TopicColumns | None = COLUMNS) -> tuple[bytes, SealedSegment]:
    file = io.BytesIO()
    writer = SegmentWriter(file, PARTITION, columns=columns)
    writer.write(batch)
    about = writer.close()
    return file.getvalue(), about


def stored(store: ObjectStore, batch: pa.RecordBatch, columns: TopicColumns | None = COLUMNS) -> Segment:
    data, about = sealed(batch, columns)
    version = 0 if columns is None else columns.version
    path = segment_path(1, 1, PARTITION, about.first, about.end, columns=version)
    store.put(path, data)
    return about.segment(path)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}/store")


def test_readers_get_the_messages_without_the_typed_columns(store: ObjectStore) -> None:
    batch = messages()
    typed, plain = stored(store, batch), stored(store, batch, None)
    assert typed.content_hash == plain.content_hash
    for segment, version in ((typed, 1), (plain, 0)):
        verify(store, segment)
        with SegmentFile(store.open_file(segment.path, segment.bytes), segment) as file:
            assert (file.columns, file.schema.names) == (version, SCHEMA.names)
            assert [part.to_pydict() for part in file.read()] == [batch.to_pydict()]


def test_the_file_has_typed_columns_with_field_ids_and_statistics() -> None:
    data, _ = sealed(messages())
    file = pq.ParquetFile(io.BytesIO(data))
    table = file.read()
    assert table.schema.names == [*SCHEMA.names, "v", "v_error"]
    assert table["v"][3].as_py() == {"n": 3, "at": {"city": "c3"}, "tags": ["a"], "counts": [("b", 3)]}
    assert table["v"][BROKEN].as_py() is None
    assert [at for at, error in enumerate(table["v_error"].to_pylist()) if error] == [BROKEN]
    kind = table.schema.field("v")
    ids = {kind.name: kind, **{field.name: field for field in kind.type}}
    ids |= {"city": kind.type.field("at").type.field(0), "element": kind.type.field("tags").type.value_field}
    ids |= {"key": kind.type.field("counts").type.key_field, "value": kind.type.field("counts").type.item_field}
    assert {name: int(field.metadata[b"PARQUET:field_id"]) for name, field in ids.items()} == {
        "v": 200,
        "n": 2000,
        "at": 2001,
        "city": 2002,
        "tags": 2003,
        "element": 2004,
        "counts": 2005,
        "key": 2006,
        "value": 2007,
    }
    group = file.metadata.row_group(0)
    statistics = {group.column(at).path_in_schema: group.column(at).statistics for at in range(group.num_columns)}
    assert (statistics["v.n"].min, statistics["v.n"].max) == (0, ROWS - 1)
    assert statistics["v.at.city"].min == "c0"


def test_merged_files_are_filled_with_the_newest_columns(store: ObjectStore) -> None:
    batch = messages()
    wider = widened(COLUMNS, {"properties": {"more": {"type": "string"}}})
    old = [stored(store, batch.slice(0, 20), None), stored(store, batch.slice(20))]

    def put(made: SealedSegment, file: Path) -> Segment:
        path = segment_path(1, 1, PARTITION, made.first, made.end, columns=wider.version)
        store.put(path, file)
        return made.segment(path)

    [new] = merge(store, old, put, wider)
    verify_merged(store, old, [new])
    table = pq.read_table(io.BytesIO(b"".join(store.chunks(new.path, new.bytes))))
    assert table["v"].null_count == 1
    assert table["v"][30].as_py()["more"] is None
    assert table["v"][30].as_py()["n"] == 30


def test_the_path_says_which_columns_a_file_has(store: ObjectStore) -> None:
    segment = stored(store, messages())
    assert segment.path.endswith("-c1.parquet")
    assert columns_of_file(segment.path) == 1
    data = b"".join(store.chunks(segment.path, segment.bytes))
    for other in (segment.path.replace("-c1", ""), segment.path.replace("-c1", "-c2")):
        assert parse_segment_path(other) is not None
        store.put(other, data)
        with pytest.raises(SegmentDamaged, match="version 1 of the columns"):
            verify(store, SealedSegment.segment(segment, other))
