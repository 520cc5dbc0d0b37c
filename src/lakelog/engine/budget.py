"""One memory budget per process: what is over it is refused at once, never queued."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakelog.errors import Overloaded


class Budget:
    """Bytes in hand: bodies being read, messages waiting for their commit, answers being built."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def has(self, size: int) -> bool:
        """Return whether that much fits now."""
        return self.used + size <= self.limit

    def take(self, size: int) -> None:
        """`Overloaded` if that much does not fit now; every `take` needs its `give`."""
        if not self.has(size):
            raise Overloaded("The server's memory budget is used up; try again shortly.", retry_after=1)
        self.used += size

    def give(self, size: int) -> None:
        self.used -= size

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        self.take(size)
        try:
            yield
        finally:
            self.give(size)
