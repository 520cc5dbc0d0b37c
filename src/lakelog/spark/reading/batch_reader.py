"""`spark.read.format("lakelog")`: a topic as a table, planned on the driver and read by tasks as Arrow batches.

A query plans when it runs, so it does not contain messages published later. For history, `lakelog.spark.topic` is
faster, because Spark then reads the segments itself.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from lakelog.client._sync.lake import Lake
from lakelog.client.reading.columns import ALL_COLUMNS, Columns
from lakelog.client.reading.group_view import GroupView
from lakelog.client.reading.read_ranges import ReadRange, ranges_in, ranges_of, require_whole
from lakelog.errors import OffsetOutOfRange
from lakelog.spark.reading.filters import RowFilter, with_keys
from lakelog.spark.reading.planning import Split, splits_of
from lakelog.spark.reading.range_reader import ReadTarget, read_piece
from lakelog.spark.reading.ranges import ReadOptions, parse_read_options
from lakelog.spark.session import ConnectionSettings, announced, client, connection_of, short_errors
from lakelog.spark.source import spark_schema

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module of the processes that push filters down."""


_log = logging.getLogger(__name__)


class SplitPartition(InputPartition):
    """The ranges that one task reads, their source, and the keys that the query can match; None for all."""

    def __init__(self, place: ReadTarget, split: Split, keys: frozenset[bytes] | None = None) -> None:
        super().__init__(None)
        self.place = place
        self.split = split
        self.keys = keys

    def part(self, read_range: ReadRange) -> SplitPartition:
        """Return the same for one of the ranges."""
        return SplitPartition(self.place, (read_range,), self.keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SplitPartition) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.split)


def split_partitions(
    place: ReadTarget, read_ranges: Iterable[ReadRange], keys: frozenset[bytes] | None = None
) -> list[SplitPartition]:
    """Return a split for each task."""
    return [SplitPartition(place, split, keys) for split in splits_of(read_ranges)]


def read_split(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a split as batches for Spark, inside a task."""
    # Spark creates a partition of its own if there is nothing to read.
    if isinstance(partition, SplitPartition):
        place, keys = partition.place, partition.keys
        read = _read_existing if place.skips_removed else read_piece
        batches: Iterable[pa.RecordBatch] = (
            batch for read_range in partition.split for batch in read(place, read_range)
        )
        if place.view is not None:
            batches = map(place.view.select, batches)
        yield from for_spark(batches if keys is None else with_keys(batches, keys), place.columns)


def _read_existing(place: ReadTarget, wanted: ReadRange) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range. If they were removed since the plan, continue at the log start."""
    at = wanted.first
    while at < wanted.end:
        try:
            for batch in read_piece(place, replace(wanted, first=at)):
                at += batch.num_rows
                yield batch
        except OffsetOutOfRange:
            log_start = client(place.connection).lake.watermarks(place.topic).starts.get(wanted.partition, 0)
            if log_start <= at:
                raise
            end = min(log_start, wanted.end)
            _log.warning(
                "Messages %d to %d of topic '%s' partition %d were removed while they were read.",
                at,
                end - 1,
                place.topic,
                wanted.partition,
            )
            at = end


class BatchReader(DataSourceReader):
    """A reader that plans in the driver's Python process, and whose pickled copies read splits on executors."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options: ReadOptions = parse_read_options(options)
        self._connection: ConnectionSettings = connection_of(options)
        self._filter = RowFilter()

    @short_errors()
    def partitions(self) -> list[Any]:
        options, wanted = self._options, self._filter
        if wanted.is_empty:
            return []
        if options.pinned is not None:
            place = ReadTarget(
                connection=self._connection,
                topic=options.topic,
                incarnation=options.pinned.incarnation,
                columns=options.columns,
                store_options=options.store,
            )
            return split_partitions(place, wanted.ranges(ranges_in(options.pinned.ranges)), wanted.keys)
        with announced(self._connection):
            lake = client(self._connection).lake
            plan = lake.plan(options.topic, wanted.plan_options(options.plan))
            view = group_view(lake, options.topic, options.for_group)
        require_whole(plan, options.plan.starts, options.plan.ends)
        place = replace(ReadTarget.of(self._connection, plan, options.store, options.columns), view=view)
        return split_partitions(place, wanted.ranges(ranges_of(plan)), wanted.keys)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with short_errors():
            yield from read_split(partition)


class FilteringReader(BatchReader):
    """A reader that leaves out what the filters of the query cannot match. Spark evaluates the filters again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filter = RowFilter.of(filters)
        return filters


def batch_reader(options: Mapping[str, str]) -> BatchReader:
    """Return a reader, with filters only in a process that pushes them.

    Spark refuses a reader with filters where `spark.sql.python.filterPushdown.enabled` is off. It starts that process
    only where the setting is on.
    """
    main = sys.modules["__main__"]
    is_pushing = _PUSHING in sys.modules or getattr(getattr(main, "__spec__", None), "name", None) == _PUSHING
    return (FilteringReader if is_pushing else BatchReader)(options)


def group_view(lake: Lake, topic: str, group: str | None) -> GroupView | None:
    """Return what a group gets of a topic now; None without a group."""
    return None if group is None else GroupView(group=group, at=lake.watermarks(topic).now)


ROWS = 10_000
"""The number of rows in a batch for Spark. Smaller batches cost more per row, larger ones delay the first row."""


@lru_cache(maxsize=64)
def arrow_schema(columns: Columns = ALL_COLUMNS) -> pa.Schema:
    """Return the Arrow form of Spark's schema.

    Spark checks only the first batch of a task, so every batch must match it.
    """
    return to_arrow_schema(spark_schema(columns), timezone="UTC")


def for_spark(
    batches: Iterable[pa.RecordBatch], columns: Columns = ALL_COLUMNS, rows: int = ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the same messages in batches of up to `rows`: small batches are combined, large ones are sliced."""
    gathered: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        for part in _slices(batch, rows):
            if count + part.num_rows > rows:
                yield _joined(gathered, columns)
                gathered, count = [], 0
            gathered.append(part)
            count += part.num_rows
    if gathered:
        yield _joined(gathered, columns)


def as_spark(batch: pa.RecordBatch, names: Columns = ALL_COLUMNS) -> pa.RecordBatch:
    """Return these columns of the batch in Spark's types, which have no fixed-size binary for producer ids."""
    schema = arrow_schema(names)
    columns = []
    for field in schema:
        column = batch.column(field.name)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _slices(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, rows):
        yield batch if batch.num_rows <= rows else batch.slice(start, rows)


def _joined(batches: list[pa.RecordBatch], columns: Columns) -> pa.RecordBatch:
    parts = [as_spark(batch, columns) for batch in batches]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
