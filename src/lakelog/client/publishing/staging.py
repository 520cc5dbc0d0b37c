"""From columns to staged batches: the client's half of a large write, without any I/O.

Rows are collected first and then split by partition, so that batches are large even if a topic has many partitions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakelog.batches import PUBLIC, check_limits, from_columns, partitions_of, split
from lakelog.batches.arrays import filled_numbers, from_numbers
from lakelog.batches.schema import TIME
from lakelog.client.publishing.codec import check_partition
from lakelog.client.publishing.columns import Partitions, encoded
from lakelog.client.publishing.partition_choice import MAX_BATCH_BYTES, KeylessPartitioner
from lakelog.errors import InvalidBatch
from lakelog.model.limits import MAX_BATCH_MESSAGES, MAX_BODY_BYTES
from lakelog.model.topic_info import TopicInfo
from lakelog.model.write import StagePiece

GATHERED_BYTES = 24 << 20
"""Before compression. Memory holds two or three times this at once."""
REQUEST_BYTES = MAX_BODY_BYTES - (256 << 10)
COLUMNS = frozenset({*PUBLIC, "partition"} - {"idempotency_key"})

_NO_PARTITION = -1


class StagingEncoder:
    """Encodes the batches of one attempt, in shares that fit into one request each."""

    def __init__(self, topic: TopicInfo, *, gathered_bytes: int = GATHERED_BYTES) -> None:
        self._topic = topic
        self._partitioner = KeylessPartitioner()
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0
        self._limit = gathered_bytes
        self._number = 0
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[list[StagePiece]]:
        """Add a batch. Yield the shares that are ready."""
        if batch.num_rows:
            self._gathered.append(batch)
            self._size += batch.nbytes
        if self._size >= self._limit:
            yield from self.rest()

    def rest(self) -> Iterator[list[StagePiece]]:
        """Yield the remaining shares."""
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered).combine_chunks()
        self._gathered, self._size = [], 0
        share: list[StagePiece] = []
        size = 0
        for part in self._pieces(table):
            if share and size + len(part.payload) > REQUEST_BYTES:
                yield share
                share, size = [], 0
            share.append(part)
            size += len(part.payload)
        yield share

    def _pieces(self, table: pa.Table) -> Iterator[StagePiece]:
        batch, chosen = _rows_of(table)
        partitions = self._partitions(batch, chosen)
        highest = int(partitions.max())
        for partition, part in split(batch, partitions, max(self._topic.partitions, highest + 1)):
            for run in _runs(part):
                check_limits(run)
                yield StagePiece(partition=partition, number=self._number, count=run.num_rows, payload=encoded(run))
                self._number += 1
                self.count += run.num_rows

    def _partitions(self, batch: pa.RecordBatch, chosen: Partitions | None) -> Partitions:
        count = self._topic.partitions
        number = batch.schema.get_field_index("key")
        if number < 0:
            partitions = np.full(batch.num_rows, _NO_PARTITION, np.int32)
        else:
            partitions = partitions_of(batch.column(number), count)
        if chosen is not None:
            partitions = np.where(chosen >= 0, chosen, partitions).astype(np.int32)
        keyless = np.flatnonzero(partitions < 0)
        if len(keyless):
            partitions[keyless] = self._partitioner.many(len(keyless), count)
        return partitions


def _rows_of(table: pa.Table) -> tuple[pa.RecordBatch, Partitions | None]:
    """Return the messages in the columns of a batch, and the partitions that rows name, if any (-1: none)."""
    unknown = [name for name in table.schema.names if name not in COLUMNS]
    if unknown:
        raise InvalidBatch(f"Column {unknown[0]!r} cannot be staged; send {', '.join(sorted(COLUMNS))}.")
    columns = {name: table.column(name) for name in table.schema.names if name != "partition"}
    if "created_at" not in columns:
        columns["created_at"] = from_numbers(np.full(table.num_rows, int(time.time() * 1e6), np.int64), TIME)
    chosen = None
    if "partition" in table.schema.names:
        chosen = filled_numbers(table.column("partition").cast(pa.int32()).combine_chunks(), _NO_PARTITION)
        check_partition(max(0, int(chosen.max())))
    return from_columns(columns), chosen


def _runs(part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split into parts of about equal size that a server accepts as one batch."""
    parts = max(-(-part.num_rows // MAX_BATCH_MESSAGES), -(-part.nbytes // MAX_BATCH_BYTES))
    step = -(-part.num_rows // min(parts, part.num_rows))
    for start in range(0, part.num_rows, step):
        run = part.slice(start, step)
        if run.nbytes > MAX_BATCH_BYTES and run.num_rows > 1:
            half = run.num_rows // 2
            yield from _runs(run.slice(0, half))
            yield from _runs(run.slice(half))
        else:
            yield run
