"""Encodes columns as staged batches: the client's half of a large write, without any I/O.

Rows are collected first and then split by partition, so that batches are large even if a topic has many partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakelog.batches import check_limits, split
from lakelog.client.publishing.columns import SENT, choose_partitions, encoded, rows_of_part
from lakelog.client.publishing.partition_choice import MAX_BATCH_BYTES, KeylessPartitioner
from lakelog.errors import InvalidBatch
from lakelog.model.limits import MAX_BATCH_MESSAGES, MAX_BODY_BYTES
from lakelog.model.topic_info import TopicInfo
from lakelog.model.write import StagePiece

GATHERED_BYTES = 24 << 20
"""The size before compression. The process holds two or three times as much in memory."""
REQUEST_BYTES = MAX_BODY_BYTES - (256 << 10)


class StagingEncoder:
    """Encodes the batches of one attempt, in lists that each fit into one request."""

    def __init__(self, topic: TopicInfo, *, gathered_bytes: int = GATHERED_BYTES) -> None:
        self._topic = topic
        self._partitioner = KeylessPartitioner()
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0
        self._limit = gathered_bytes
        self._number = 0
        self.count = 0
        self.named = 0
        """The number of messages whose partition the caller named."""

    def add(self, batch: pa.RecordBatch) -> Iterator[list[StagePiece]]:
        """Add a batch. Yield the lists of encoded batches that are ready."""
        if batch.num_rows:
            self._gathered.append(batch)
            self._size += batch.nbytes
        if self._size >= self._limit:
            yield from self.rest()

    def rest(self) -> Iterator[list[StagePiece]]:
        """Yield the remaining encoded batches."""
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
        unknown = [name for name in table.schema.names if name not in SENT]
        if unknown:
            raise InvalidBatch(f"Column {unknown[0]!r} cannot be staged; send {', '.join(sorted(SENT))}.")
        rows = rows_of_part(table)
        if rows.chosen is not None:
            self.named += int((rows.chosen >= 0).sum())
        partitions = choose_partitions(rows, self._topic.partitions, self._partitioner)
        highest = int(partitions.max())
        for partition, part in split(rows.batch, partitions, max(self._topic.partitions, highest + 1)):
            for run in _runs(part):
                check_limits(run)
                yield StagePiece(partition=partition, number=self._number, count=run.num_rows, payload=encoded(run))
                self._number += 1
                self.count += run.num_rows


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
