"""Converts batches of a topic for Spark: its Arrow types, in chunks of a suitable size. It reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from lakelog.spark.source import spark_schema

ROWS = 10_000
"""Rows of a batch for Spark: smaller batches cost more per row, larger ones delay the first row."""


@lru_cache(maxsize=1)
def arrow_schema() -> pa.Schema:
    """Return the Arrow form of Spark's schema.

    Spark checks only the first batch of a task, so every batch must match it.
    """
    return to_arrow_schema(spark_schema(), timezone="UTC")


def for_spark(batches: Iterable[pa.RecordBatch], rows: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the same messages in batches of up to `rows`: small batches are combined, large ones are sliced."""
    gathered: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        for part in _slices(batch, rows):
            if count + part.num_rows > rows:
                yield _joined(gathered)
                gathered, count = [], 0
            gathered.append(part)
            count += part.num_rows
    if gathered:
        yield _joined(gathered)


def as_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch cast to Spark's types, which have no fixed-size binary for producer ids."""
    schema = arrow_schema()
    columns = []
    for field in schema:
        column = batch.column(field.name)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _slices(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, rows):
        yield batch if batch.num_rows <= rows else batch.slice(start, rows)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    parts = [as_spark(batch) for batch in batches]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
