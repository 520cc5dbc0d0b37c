"""Small micro-batches, handed to Spark by the process that plans them: no Python task runs for them.

PySpark has no public way to do this. Its wrapper of simple readers has one: Spark asks a reader of that private class
for the rows of a micro-batch right after its partitions, and puts them into the block manager. A reader becomes such a
reader for that moment. If the block is lost, Spark reads the partition in a task, as without this module.

Only versions of PySpark that were tested do so. Others read every micro-batch in tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyspark
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from lakelog.errors import OffsetOutOfRange
from lakelog.spark.reading.batch_reader import SplitPartition, read_split

TESTED = ("4.2.0",)
"""The versions of PySpark in which the private class behaves as described above."""
MAX_MESSAGES = 2_000
"""A micro-batch with more messages is read by tasks without a look at its size."""
_AT_ONCE = 4
"""The number of partitions that are read at the same time."""

is_supported = pyspark.__version__ in TESTED and hasattr(_SimpleStreamReaderWrapper, "getCache")


class Handover:
    """The rows of a micro-batch, from its planning until Spark asks for them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes if is_supported else 0
        self._started: tuple[SplitPartition, list[Future[list[pa.RecordBatch]]]] | None = None
        self._rows: list[pa.RecordBatch] | None = None
        self._pool: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_max_bytes": self._max_bytes, "_started": None, "_rows": None, "_pool": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def start(self, partition: SplitPartition) -> None:
        """Begin to read a micro-batch if it is small, while the group is confirmed and Spark writes its offsets."""
        self._started = self._rows = None
        count = sum(each.count for each in partition.split)
        if not self._max_bytes or not 0 < count <= MAX_MESSAGES:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="lakelog-handover")
        parts = [partition.part(each) for each in partition.split]
        self._started = partition, [self._pool.submit(_read, part) for part in parts]

    def finish(self, partition: SplitPartition) -> bool:
        """Return whether the micro-batch is small and was read. Otherwise tasks have to read it."""
        if self._started is None or self._started[0] != partition:
            self.start(partition)
        if self._started is None:
            return False
        (_, reading), self._started = self._started, None
        try:
            rows = [batch for part in reading for batch in part.result()]
        except OffsetOutOfRange:
            # The plan says what is missing, and what to do.
            return False
        if sum(batch.nbytes for batch in rows) > self._max_bytes:
            return False
        self._rows = rows
        return True

    def take(self) -> Iterator[pa.RecordBatch] | None:
        """Return the rows that were read, once."""
        rows, self._rows = self._rows, None
        return None if rows is None else iter(rows)


def _read(partition: SplitPartition) -> list[pa.RecordBatch]:
    return list(read_split(partition))
