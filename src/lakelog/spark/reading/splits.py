"""What tasks read: a split each, and where it is. The same for a batch read and for a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lakelog.spark.reading.columns import for_spark
from lakelog.spark.reading.planning import ReadRange, Split, splits_of
from lakelog.spark.reading.range_reader import ReadTarget, read_piece


class SplitPartition(InputPartition):
    """What one task reads, and from where."""

    def __init__(self, place: ReadTarget, split: Split) -> None:
        super().__init__(None)
        self.place = place
        self.split = split


def split_partitions(place: ReadTarget, pieces: Iterable[ReadRange]) -> list[SplitPartition]:
    """One for each task."""
    return [SplitPartition(place, split) for split in splits_of(pieces)]


def read_split(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """In a task: its messages, as Spark wants them."""
    # Spark makes a partition of its own where there is nothing to read.
    if isinstance(partition, SplitPartition):
        place = partition.place
        yield from for_spark(batch for piece in partition.split for batch in read_piece(place, piece))
