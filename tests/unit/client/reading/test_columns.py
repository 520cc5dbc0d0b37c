"""Batches for Spark: its own Arrow types, in chunks of the right size, with nothing lost between them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.client.reading.columns import ALL_COLUMNS, DEFAULT_COLUMNS, columns_of
from lakelog.errors import InvalidRequest
from lakelog.segments.schema import SCHEMA
from lakelog.spark.reading.batch_reader import arrow_schema, for_spark


def batch(first: int, count: int) -> pa.RecordBatch:
    columns = [pa.nulls(count, field.type) for field in SCHEMA]
    columns[SCHEMA.get_field_index("offset")] = pa.array(range(first, first + count), pa.int64())
    columns[SCHEMA.get_field_index("producer")] = pa.array([bytes(16)] * count, pa.binary(16))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@given(counts=st.lists(st.integers(0, 40), max_size=12), rows=st.integers(1, 25))
def test_every_message_once_in_order_in_spark_s_types(counts: list[int], rows: int) -> None:
    given_batches, at = [], 0
    for count in counts:
        given_batches.append(batch(at, count))
        at += count
    made = list(for_spark(given_batches, rows=rows))
    assert [offset for one in made for offset in one.column("offset").to_pylist()] == list(range(at))
    for one in made:
        assert 0 < one.num_rows <= rows
        assert one.schema.equals(arrow_schema(), check_metadata=True)


def test_spark_gets_the_named_columns_in_their_order() -> None:
    assert columns_of(None) == DEFAULT_COLUMNS
    assert columns_of("*") == tuple(SCHEMA.names) == ALL_COLUMNS
    names = columns_of("value, offset")
    assert names == columns_of(["value", "offset"]) == ("value", "offset")
    [made] = for_spark([batch(3, 2)], names)
    assert made.schema.equals(arrow_schema(names), check_metadata=True)
    assert made.column("offset").to_pylist() == [3, 4]


@pytest.mark.parametrize(
    ("given_columns", "said"),
    [
        ("key, valu", "has no column 'valu'. Did you mean 'value'"),
        ("", "has no column ''. Columns: partition, offset"),
        ("key,key", "names a column twice"),
        ("*,key", r"has no column '\*'"),
    ],
)
def test_wrong_columns_are_refused(given_columns: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        columns_of(given_columns)


def test_the_types_are_those_that_spark_checks_for() -> None:
    schema = arrow_schema()
    assert schema.names == SCHEMA.names
    assert schema.field("producer").type == pa.binary()
    assert schema.field("appended_at").type == pa.timestamp("us", tz="UTC")
    assert all(field.nullable for field in schema)
