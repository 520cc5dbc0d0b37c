"""A page of shared memory on which client processes say how far they are; it survives them, and needs no call."""

from __future__ import annotations

import mmap
from enum import IntEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

SLOTS = 1 << 16
THROTTLE_SLOT = SLOTS - 1
"""Nobody's row: its last field says how much producers shall hold back, for groups to come after them."""


class ProgressField(IntEnum):
    """What is counted, of each process."""

    PUBLISHED = 0
    """Messages acknowledged, repeats of known ones not counted."""
    DELIVERED = 1
    ACKED = 2
    UNKNOWN = 3
    """Calls."""
    REFUSED = 4
    BUSY = 5
    """For a producer: a call is on its way. For a worker: messages in client."""


class SharedProgress:
    """One row for each process of a run, by its number."""

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
        """0: not at all; 1: a quarter of the rate; 2: nothing."""
        self.put(THROTTLE_SLOT, ProgressField.BUSY, level)

    @property
    def throttle_level(self) -> int:
        return self.get(THROTTLE_SLOT, ProgressField.BUSY)

    def total(self, field: ProgressField) -> int:
        return int(self._cells[:, field].sum())
