"""One memory budget per process. A request that exceeds it is refused immediately, never queued."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakelog.errors import Overloaded


class Budget:
    """Bytes in use: bodies being read, messages waiting for their commit, and responses being built."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def has(self, size: int) -> bool:
        """Return whether that much memory is available now."""
        return self.used + size <= self.limit

    def take(self, size: int) -> None:
        """Take memory, or raise `Overloaded` if it is not available. Every `take` needs a `give`."""
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
