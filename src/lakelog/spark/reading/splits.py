"""Splits: the part of a read that one task reads, and its source. Batch reads and streams share them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lakelog.spark.reading.columns import for_spark
from lakelog.spark.reading.planning import ReadRange, Split, splits_of
from lakelog.spark.reading.range_reader import ReadTarget, read_piece


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
