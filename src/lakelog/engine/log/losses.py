"""Counts the acknowledged messages that a failover lost.

Each process remembers the offsets that it acknowledged itself. After a failover it compares them with the ends of the
logs at which the new timeline began. The counts of all processes add up to the loss. A process that restarted has
nothing to compare. Nothing here can restore a message.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping

from lakelog.errors import LakelogError
from lakelog.model.message import PARTITION_BITS, message_id, partition_of_id
from lakelog.reporting import log_event
from lakelog.storage.store import PartitionStore

RANGES = 1 << 16
"""The number of ranges that are remembered per cell, 24 bytes each."""
_MAX_RANGE = 10_000
"""The largest number of messages in a range. A range is forgotten as a whole."""
_RETRY_SECONDS = 0.5

_log = logging.getLogger(__name__)


class AckedRanges:
    """The last ranges of offsets in one cell that this process acknowledged, on one timeline."""

    def __init__(self) -> None:
        self.timeline = 0
        """The timeline of the first acknowledgement; 0 before it."""
        self.is_complete = True
        """False if ranges were forgotten."""
        self._pids, self._firsts, self._ends = array("q"), array("q"), array("q")
        self._next = 0
        self._last: dict[int, int] = {}
        """The place of the last range of each partition."""

    def add(self, pid: int, first: int, end: int) -> None:
        """Add the offsets from `first` up to, not including, `end`."""
        place = self._last.get(pid)
        if place is not None and self._ends[place] == first and end - self._firsts[place] <= _MAX_RANGE:
            self._ends[place] = end
            return
        if len(self._pids) < RANGES:
            self._last[pid] = len(self._pids)
            for column, value in ((self._pids, pid), (self._firsts, first), (self._ends, end)):
                column.append(value)
            return
        place, self._next = self._next, (self._next + 1) % RANGES
        self.is_complete = False
        if self._last.get(self._pids[place]) == place:
            del self._last[self._pids[place]]
        self._pids[place], self._firsts[place], self._ends[place] = pid, first, end
        self._last[pid] = place

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yield (pid, first, end) of each range."""
        return zip(self._pids, self._firsts, self._ends, strict=True)

    @property
    def pids(self) -> list[int]:
        """The partitions with at least one range."""
        return sorted({*self._pids})


class Losses:
    """The losses of all cells since this process started."""

    def __init__(self, cells: Mapping[int, PartitionStore]) -> None:
        self._cells = cells
        self._acked = {cell: AckedRanges() for cell in cells}
        self._tasks: set[asyncio.Task[None]] = set()
        self.by_partition: Counter[int] = Counter()
        """The number of lost messages by partition id."""
        self.by_cell: Counter[int] = Counter()

    @property
    def total(self) -> int:
        """The number of acknowledged messages that were lost."""
        return self.by_cell.total()

    def acked(self, cell: int, pid: int, first: int, count: int) -> None:
        """Remember messages that were just written, and are about to be acknowledged.

        They belong to the present timeline, even if the call began on another one: a store reports success only for
        writes to the newest timeline that it knows.

        Args:
            cell: The cell's number.
            pid: The partition's id.
            first: The first offset.
            count: The number of messages.
        """
        ranges = self._acked[cell]
        ranges.timeline = ranges.timeline or self._cells[cell].timeline
        ranges.add(pid, first, first + count)

    def replaced(self, cell: int) -> None:
        """Compare with the new timeline what was acknowledged on the one before, and log the difference."""
        before, self._acked[cell] = self._acked.get(cell, AckedRanges()), AckedRanges()
        if before.timeline:
            task = asyncio.get_running_loop().create_task(self._compare(cell, before))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop comparing."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _compare(self, cell: int, acked: AckedRanges) -> None:
        while True:
            pids = acked.pids
            try:
                ends = await self._cells[cell].timelines.ends_after([(pid, acked.timeline) for pid in pids])
                break
            except LakelogError:
                await asyncio.sleep(_RETRY_SECONDS)
        known = dict(zip(pids, ends, strict=True))
        lost: dict[int, list[tuple[int, int]]] = {}
        for pid, first, end in sorted(acked):
            start = known.get(pid)
            if start is None or end <= start:
                continue
            ranges = lost.setdefault(pid, [])
            # A repeated call may have been acknowledged twice.
            first = max(first, start, ranges[-1][1] if ranges else 0)
            if first < end:
                ranges.append((first, end))
        for pid, ranges in lost.items():
            self._report(cell, pid, ranges, acked.is_complete)

    def _report(self, cell: int, pid: int, ranges: list[tuple[int, int]], is_complete: bool) -> None:
        count = sum(end - first for first, end in ranges)
        self.by_partition[pid] += count
        self.by_cell[cell] += count
        first, last = min(first for first, _ in ranges), max(end for _, end in ranges) - 1
        one, other = (message_id(pid >> PARTITION_BITS, partition_of_id(pid), each) for each in (first, last))
        bound = "" if is_complete else "at least "
        message = (
            f"A failover of cell {cell} lost {bound}{count} messages that this server had acknowledged: {one} to "
            f"{other}. Their offsets may be assigned to other messages. Publish the lost messages again."
        )
        fields = {"cell": cell, "partition_id": pid, "first_offset": first, "last_offset": last, "messages": count}
        log_event(_log, logging.ERROR, "messages_lost", message, **fields)
