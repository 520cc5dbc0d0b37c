"""Counters of client processes in shared memory. They survive the processes, and need no call to read."""

from __future__ import annotations

import mmap
from enum import IntEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

SLOTS = 1 << 16
THROTTLE_SLOT = SLOTS - 1
"""The row that belongs to no process. Its last field is the throttle level of producers, so that groups can catch
up.
"""


class ProgressField(IntEnum):
    """The counters of each process."""

    PUBLISHED = 0
    """The number of acknowledged messages, without repeats."""
    DELIVERED = 1
    ACKED = 2
    UNKNOWN = 3
    """The number of calls of unknown outcome."""
    REFUSED = 4
    BUSY = 5
    """For a producer, 1 while a call is in progress; for a worker, the number of messages that it holds."""


class SharedProgress:
    """One row of counters per process of a run."""

    def __init__(self, path: Path) -> None:
        size = SLOTS * len(ProgressField) * 8
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(size)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self._cells: npt.NDArray[np.int64] = np.frombuffer(self._map, np.int64).reshape(SLOTS, len(ProgressField))

    def add(self, slot: int, field: ProgressField, count: int = 1) -> None:
        self._cells[slot, field] += count

    def put(self, slot: int, field: ProgressField, number: int) -> None:
        self._cells[slot, field] = number

    def get(self, slot: int, field: ProgressField) -> int:
        return int(self._cells[slot, field])

    def throttle(self, level: int) -> None:
        """Set the throttle level: 0 for the full rate, 1 for a quarter of it, 2 for nothing."""
        self.put(THROTTLE_SLOT, ProgressField.BUSY, level)

    @property
    def throttle_level(self) -> int:
        return self.get(THROTTLE_SLOT, ProgressField.BUSY)

    def total(self, field: ProgressField) -> int:
        return int(self._cells[:, field].sum())
