"""A page of shared memory on which client processes say how far they are; it survives them, and needs no call."""

from __future__ import annotations

import mmap
from enum import IntEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

SLOTS = 1 << 16
BRAKE = SLOTS - 1
"""Nobody's row: its last field says how much producers shall hold back, for groups to come after them."""


class Field(IntEnum):
    """What is counted, of each process."""

    PUBLISHED = 0
    """Messages acknowledged, repeats of known ones not counted."""
    DELIVERED = 1
    ACKED = 2
    UNKNOWN = 3
    """Calls."""
    REFUSED = 4
    BUSY = 5
    """For a producer: a call is on its way. For a worker: messages in hand."""


class Board:
    """One row for each process of a run, by its number."""

    def __init__(self, path: Path) -> None:
        size = SLOTS * len(Field) * 8
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(size)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self._cells: npt.NDArray[np.int64] = np.frombuffer(self._map, np.int64).reshape(SLOTS, len(Field))

    def add(self, slot: int, field: Field, count: int = 1) -> None:
        self._cells[slot, field] += count

    def put(self, slot: int, field: Field, number: int) -> None:
        self._cells[slot, field] = number

    def get(self, slot: int, field: Field) -> int:
        return int(self._cells[slot, field])

    def brake(self, level: int) -> None:
        """0: not at all; 1: a quarter of the rate; 2: nothing."""
        self.put(BRAKE, Field.BUSY, level)

    @property
    def braked(self) -> int:
        return self.get(BRAKE, Field.BUSY)

    def total(self, field: Field) -> int:
        return int(self._cells[:, field].sum())
