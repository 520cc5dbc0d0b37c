"""The part of the log that a group gets: no copies that were redriven for other groups, and no expired messages.

Servers leave these messages out of leases. A reader by position fetches all messages, and leaves them out itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.batches import decode_columns
from lakelog.batches.schema import TIME
from lakelog.model.fetch import FetchedBatches

VIEW_COLUMNS = ("target_group", "expires_at")
"""The columns that decide what a group gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """The messages that a group gets at a time.

    Attributes:
        group: The name of the group.
        at: The time, with a time zone. A message that expires at this time or earlier is left out.
    """

    group: str
    at: datetime

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that the group gets."""
        kept = self._kept(batch)
        return batch if kept is None else batch.filter(kept)

    def excluded_offsets(self, fetched: FetchedBatches) -> frozenset[int]:
        """Return the offsets of a fetch that the group does not get."""
        found: list[int] = []
        for stored in fetched.batches:
            batch = decode_columns(stored.payload, VIEW_COLUMNS)
            kept = None if batch is None else self._kept(batch)
            if kept is not None:
                found += (np.flatnonzero(~kept.to_numpy(zero_copy_only=False)) + stored.base).tolist()
        return frozenset(offset for offset in found if fetched.start <= offset < fetched.until)

    def _kept(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """Return a flag for each row, or None if the group gets all rows."""
        flags = [
            pc.fill_null(flag(batch.column(name)), True)
            for name, flag in zip(VIEW_COLUMNS, (self._is_for_group, self._is_unexpired), strict=True)
            if name in batch.schema.names and batch.column(name).null_count < batch.num_rows
        ]
        if not flags:
            return None
        return flags[0] if len(flags) == 1 else pc.and_(*flags)

    def _is_for_group(self, targets: pa.StringArray) -> pa.BooleanArray:
        return pc.equal(targets, self.group)

    def _is_unexpired(self, times: pa.TimestampArray) -> pa.BooleanArray:
        return pc.greater(times, pa.scalar(self.at, TIME))
