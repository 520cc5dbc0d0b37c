"""Splits a segment into hot batches: runs of messages with the same append time and epoch. It encodes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakelog.batches import COLUMNS
from lakelog.model.times import EPOCH


class SegmentBatch(NamedTuple):
    """Messages with consecutive offsets from `base`. `batch` can be passed to `batches.encode`."""

    base: int
    count: int  # type: ignore[assignment]
    appended_at: datetime
    epoch: int
    batch: pa.RecordBatch


def split_batches(batch: pa.RecordBatch) -> list[SegmentBatch]:
    """Return the longest runs of equal (appended_at, epoch) in a batch of `SCHEMA` with dense offsets."""
    count = batch.num_rows
    if count == 0:
        return []
    times = batch.column("appended_at").cast(pa.int64()).to_numpy()
    epochs = batch.column("epoch").to_numpy()
    changes = np.flatnonzero((np.diff(times) != 0) | (np.diff(epochs) != 0)) + 1
    cuts = [0, *changes.tolist(), count]
    base = batch.column("offset")[0].as_py()
    present = [field for field in COLUMNS if field.name == "value" or _any_set(batch.column(field.name))]
    messages = pa.RecordBatch.from_arrays([batch.column(field.name) for field in present], schema=pa.schema(present))
    return [
        SegmentBatch(
            base=base + start,
            count=end - start,
            appended_at=EPOCH + timedelta(microseconds=int(times[start])),
            epoch=int(epochs[start]),
            batch=messages.slice(start, end - start),
        )
        for start, end in pairwise(cuts)
    ]


def _any_set(column: pa.Array) -> bool:
    return bool(column.null_count < len(column))
