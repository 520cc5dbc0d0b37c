"""Converts fetched batches to the columns of a segment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakelog.batches import FETCH, with_positions
from lakelog.batches.arrays import from_numbers
from lakelog.client.reading.decoding import clipped
from lakelog.model.fetch import FetchedBatches

_POSITIONS = 3
"""Partition, offset and time are the first columns, followed by the epoch."""
SCHEMA = pa.schema([*list(FETCH)[:_POSITIONS], pa.field("epoch", pa.int32()), *list(FETCH)[_POSITIONS:]])


def batches_of(fetched: FetchedBatches, end: int) -> Iterator[pa.RecordBatch]:
    """Return the messages from the start of the fetch to its end, or to `end`, exclusive."""
    for stored, batch, first in clipped(fetched, end):
        placed = with_positions(batch, fetched.partition, first, stored.appended_at)
        epoch = from_numbers(np.full(batch.num_rows, stored.epoch, np.int32), pa.int32())
        columns = [*placed.columns[:_POSITIONS], epoch, *placed.columns[_POSITIONS:]]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
