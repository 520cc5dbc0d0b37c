"""Hot tables in memory: one dict of batches per roll, like the tables of PostgreSQL."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice

from lakelog.storage.compaction import ActiveRoll, RollCounts, is_mostly_retired
from lakelog.storage.store import HotBatch

IsRetired = Callable[[int, HotBatch], bool]
"""Returns whether a batch of a partition can no longer be read from its hot table."""


class HotTables:
    """The active hot table, older ones, and kept ones, which hold what compactions copied."""

    def __init__(self, now: datetime) -> None:
        self.active = 1
        self.created_at = now
        self.tables: dict[int, dict[int, list[HotBatch]]] = {self.active: {}}
        self._kept: set[int] = set()

    def begin(self, now: datetime, expected: int | None = None) -> int:
        """Begin a new active table, unless `expected` is no longer the active one, and return the active one."""
        if expected is None or expected == self.active:
            # The number between two rolls is for a kept table.
            self.active += 2
            self.created_at = now
            self.tables[self.active] = {}
        return self.active

    def describe_active(self) -> ActiveRoll:
        return ActiveRoll(roll=self.active, bytes=self.size(self.active), created_at=self.created_at)

    def size(self, roll: int) -> int:
        return sum(len(batch.payload) for rows in self.tables[roll].values() for batch in rows)

    def is_active(self, pid: int, offset: int) -> bool:
        """Return whether the active table holds the offset."""
        return _holds(self.tables[self.active].get(pid, []), offset) is not None

    def read(self, pid: int, offset: int) -> Iterator[HotBatch]:
        """Yield batches of one table without a gap, from the one that holds the offset."""
        for rows in self.tables.values():
            batches = rows.get(pid, [])
            index = _holds(batches, offset)
            if index is not None:
                end = batches[index].base
                for batch in islice(batches, index, None):
                    if batch.base != end:
                        return
                    yield batch
                    end = batch.end
                return

    def drop(self, is_retired: IsRetired) -> list[int]:
        """Drop the tables in which everything is retired, and return their numbers."""
        dropped = self._retired(is_retired)
        for roll in dropped:
            del self.tables[roll]
            self._kept.discard(roll)
        return dropped

    def count(self, is_retired: IsRetired) -> RollCounts:
        """Count the tables. Staged messages are not in them."""
        retired = len(self._retired(is_retired))
        return RollCounts(messages=len(self.tables) - retired, transactions=retired)

    def compact(self, after: int, table_bytes: int, is_retired: IsRetired) -> int:
        """Move what survives in mostly retired tables to kept ones, and return the bytes."""
        moved = 0
        for roll in sorted(roll for roll in self.tables if after < roll < self.active):
            survivors = list(self._survivors(roll, is_retired))
            size = sum(len(batch.payload) for _, batch in survivors)
            if not is_mostly_retired(size, self.size(roll), table_bytes, is_kept=roll in self._kept):
                continue
            target = self._target(roll, table_bytes)
            if target is not None:
                for pid, batch in survivors:
                    insort(self.tables[target].setdefault(pid, []), batch, key=lambda each: each.base)
                self.tables[roll] = {}
                moved += size
        return moved

    def _retired(self, is_retired: IsRetired) -> list[int]:
        older = (roll for roll in self.tables if roll != self.active)
        return [roll for roll in older if next(self._survivors(roll, is_retired), None) is None]

    def _survivors(self, roll: int, is_retired: IsRetired) -> Iterator[tuple[int, HotBatch]]:
        rows = self.tables[roll].items()
        return ((pid, batch) for pid, batches in rows for batch in batches if not is_retired(pid, batch))

    def _target(self, roll: int, table_bytes: int) -> int | None:
        """Return a kept table with space, a new one, or None if the next roll has to make room for one."""
        found = max((kept for kept in self._kept if kept != roll and self.size(kept) < table_bytes), default=None)
        if found is None and self.active - 1 not in self.tables:
            found = self.active - 1
            self._kept.add(found)
            self.tables[found] = {}
        return found


def _holds(batches: list[HotBatch], offset: int) -> int | None:
    """Return the index of the batch that holds the offset."""
    index = bisect_right(batches, offset, key=lambda batch: batch.end)
    return index if index < len(batches) and batches[index].base <= offset else None
