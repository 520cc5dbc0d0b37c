"""Which columns of a DataFrame are written: those of a message, and nothing of where a row was read."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakelog.errors import InvalidRequest
from lakelog.spark.source import spark_schema
from lakelog.spark.writing.columns import written_columns

KINDS: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "struct": StructType([StructField("a", IntegerType())]),
}
WRITABLE = ["key", "value", "headers", "content_type", "correlation_id", "created_at", "expires_at"]


def schema(columns: str) -> StructType:
    """`value string, price int`: Spark's own parser would need a session."""
    pairs = [column.split() for column in columns.split(", ")]
    return StructType([StructField(name, KINDS[kind]) for name, kind in pairs])


def test_rows_of_a_topic_are_written_without_where_they_were_read() -> None:
    assert written_columns(spark_schema()) == WRITABLE


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("value string, partition int", ["value", "partition"]),
        ("value string, partition int, offset bigint", ["value"]),
        ("partition int, key binary, value binary, appended_at timestamp", ["key", "value"]),
        ("offset bigint, idempotency_key string, value string, producer binary", ["value"]),
    ],
)
def test_a_partition_is_the_target_unless_the_row_was_read_from_a_topic(columns: str, expected: list[str]) -> None:
    assert written_columns(schema(columns)) == expected


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("value string, price int, city string", "A message has no column 'price', 'city'. Known columns: value, key"),
        ("value string, offset string", "A message has no column 'offset'"),
        ("value string, offset bigint, price int", "A message has no column 'price'"),
        ("value string, producer binary", "A message has no column 'producer'"),
        ("value string, idempotency_key string", "Drop the column 'idempotency_key'"),
        ("key string", "Column 'value' is missing"),
        ("value struct", r"Column 'value' has type struct<a:int>; .* to_json\(value\) AS value"),
    ],
)
def test_other_columns_are_refused_in_one_line_that_names_them(columns: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        written_columns(schema(columns))
    assert "\n" not in caught.value.detail
