"""`spark.read.format("lakelog")`: a topic as a table, planned on the driver and read by tasks as Arrow batches.

A query plans when it runs, so it does not contain messages published later. For history, `lakelog.spark.topic` is
faster, because Spark then reads the segments itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from lakelog.spark.reading.planning import ReadRange, Split, ranges_in, ranges_of, require_whole, splits_of
from lakelog.spark.reading.range_reader import ReadTarget, read_piece
from lakelog.spark.reading.ranges import ReadOptions, parse_read_options
from lakelog.spark.session import ConnectionSettings, announced, client, connection_of, short_errors
from lakelog.spark.source import spark_schema


class SplitPartition(InputPartition):
    """The ranges that one task reads, and their source."""

    def __init__(self, place: ReadTarget, split: Split) -> None:
        super().__init__(None)
        self.place = place
        self.split = split


def split_partitions(place: ReadTarget, read_ranges: Iterable[ReadRange]) -> list[SplitPartition]:
    """Return a split for each task."""
    return [SplitPartition(place, split) for split in splits_of(read_ranges)]


def read_split(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a split as batches for Spark, inside a task."""
    # Spark creates a partition of its own if there is nothing to read.
    if isinstance(partition, SplitPartition):
        place = partition.place
        yield from for_spark(batch for read_range in partition.split for batch in read_piece(place, read_range))


class BatchReader(DataSourceReader):
    """A reader that plans in the driver's Python process, and whose pickled copies read splits on executors."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options: ReadOptions = parse_read_options(options)
        self._connection: ConnectionSettings = connection_of(options)

    @short_errors()
    def partitions(self) -> list[Any]:
        options = self._options
        if options.pinned is not None:
            place = ReadTarget(
                connection=self._connection,
                topic=options.topic,
                incarnation=options.pinned.incarnation,
                store_options=options.store,
            )
            return split_partitions(place, ranges_in(options.pinned.ranges))
        with announced(self._connection):
            plan = client(self._connection).lake.plan(options.topic, options.plan)
        require_whole(plan, options.plan.starts, options.plan.ends)
        return split_partitions(ReadTarget.of(self._connection, plan, options.store), ranges_of(plan))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with short_errors():
            yield from read_split(partition)


ROWS = 10_000
"""The number of rows in a batch for Spark. Smaller batches cost more per row, larger ones delay the first row."""


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
