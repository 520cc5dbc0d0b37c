"""Converts fetched batches to the columns of a segment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakelog.batches import FETCH, decode, with_positions
from lakelog.batches.arrays import from_numbers
from lakelog.client.values import Chunk

_POSITIONS = 3
"""Partition, offset and time are the first columns, followed by the epoch."""
SCHEMA = pa.schema([*list(FETCH)[:_POSITIONS], pa.field("epoch", pa.int32()), *list(FETCH)[_POSITIONS:]])


def batches_of(chunk: Chunk, end: int) -> Iterator[pa.RecordBatch]:
    """Return the messages from the chunk's start to its end, or to `end`, exclusive."""
    for frame in chunk.frames:
        first, last = max(frame.base, chunk.start), min(frame.base + frame.count, chunk.until, end)
        if first < last:
            batch = decode(frame.payload).slice(first - frame.base, last - first)
            placed = with_positions(batch, frame.partition, first, frame.appended_at)
            epoch = from_numbers(np.full(last - first, frame.epoch, np.int32), pa.int32())
            columns = [*placed.columns[:_POSITIONS], epoch, *placed.columns[_POSITIONS:]]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
