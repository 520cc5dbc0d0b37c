"""Reserves servers and clusters for faults, so that two faults do not restart the same server."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence


class Busy(Exception):
    """The error that nothing could be claimed in time."""


class Claims:
    """The claimed names. A fault takes all its names at once, so that faults cannot deadlock."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken: set[str] = set()

    def take(self, names: Iterable[str], *, within: float = 10.0) -> None:
        """Claim all of these names."""
        wanted = set(names)
        with self._changed:
            if not self._changed.wait_for(lambda: not wanted & self._taken, within):
                raise Busy(f"{', '.join(sorted(wanted & self._taken))} is taken by another fault")
            self._taken |= wanted

    def take_one(self, names: Sequence[str], chance: random.Random, *, within: float = 10.0) -> str:
        """Claim one free name, chosen at random."""
        with self._changed:
            if not self._changed.wait_for(lambda: set(names) - self._taken, within):
                raise Busy(f"{', '.join(names)} are all taken by other faults")
            name = chance.choice([name for name in names if name not in self._taken])
            self._taken.add(name)
            return name

    def free(self, names: Iterable[str]) -> None:
        with self._changed:
            self._taken -= set(names)
            self._changed.notify_all()
