"""`spark.read.format("lakelog")`: one topic as a table, planned on the driver and read by tasks as Arrow batches.

A query plans when it runs: what is published later is not in it. For history, `lakelog.spark.topic` is quicker, because
there Spark reads the segments itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakelog.spark.reading.columns import for_spark
from lakelog.spark.reading.piece_reader import Place, read_piece
from lakelog.spark.reading.planning import Split, pieces_in, pieces_of, require_whole, splits_of
from lakelog.spark.reading.ranges import ReadWish, read_wish
from lakelog.spark.session import Connection, client, connection_of


class SplitPartition(InputPartition):
    """What one task reads, and from where."""

    def __init__(self, place: Place, split: Split) -> None:
        super().__init__(None)
        self.place = place
        self.split = split


class BatchReader(DataSourceReader):
    """Planned in the driver's Python process; pickled, and its splits are read in the workers of executors."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._wish: ReadWish = read_wish(options)
        self._connection: Connection = connection_of(options)

    def partitions(self) -> list[Any]:
        wish = self._wish
        if wish.pinned is not None:
            place = self._place(wish.pinned.incarnation, None)
            return [SplitPartition(place, split) for split in splits_of(pieces_in(wish.pinned.ranges))]
        plan = client(self._connection).lake.plan(wish.topic, wish.wish)
        require_whole(plan, wish.wish.starts, wish.wish.ends)
        place = self._place(plan.incarnation, plan.store)
        return [SplitPartition(place, split) for split in splits_of(pieces_of(plan))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of its own where there is nothing to read.
        if isinstance(partition, SplitPartition):
            place = partition.place
            yield from for_spark(batch for piece in partition.split for batch in read_piece(place, piece))

    def _place(self, incarnation: int, store: str | None) -> Place:
        return Place(
            connection=self._connection,
            topic=self._wish.topic,
            incarnation=incarnation,
            store=store,
            store_options=self._wish.store,
        )
