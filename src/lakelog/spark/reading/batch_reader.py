"""`spark.read.format("lakelog")`: a topic as a table, planned on the driver and read by tasks as Arrow batches.

A query plans when it runs, so it does not contain messages published later. For history, `lakelog.spark.topic` is
faster, because Spark then reads the segments itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakelog.spark.reading.planning import ranges_in, ranges_of, require_whole
from lakelog.spark.reading.range_reader import ReadTarget
from lakelog.spark.reading.ranges import ReadOptions, read_wish
from lakelog.spark.reading.splits import read_split, split_partitions
from lakelog.spark.session import ConnectionSettings, announced, client, connection_of, short_errors


class BatchReader(DataSourceReader):
    """A reader that plans in the driver's Python process, and whose pickled copies read splits on executors."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._wish: ReadOptions = read_wish(options)
        self._connection: ConnectionSettings = connection_of(options)

    @short_errors()
    def partitions(self) -> list[Any]:
        wish = self._wish
        if wish.pinned is not None:
            place = ReadTarget(
                connection=self._connection,
                topic=wish.topic,
                incarnation=wish.pinned.incarnation,
                store_options=wish.store,
            )
            return split_partitions(place, ranges_in(wish.pinned.ranges))
        with announced(self._connection):
            plan = client(self._connection).lake.plan(wish.topic, wish.wish)
        require_whole(plan, wish.wish.starts, wish.wish.ends)
        return split_partitions(ReadTarget.of(self._connection, plan, wish.store), ranges_of(plan))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with short_errors():
            yield from read_split(partition)
