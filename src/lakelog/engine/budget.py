"""One memory budget per process. A request that exceeds it is refused immediately, never queued."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakelog.engine.fairness import Shares
from lakelog.errors import Overloaded


class Budget:
    """Bytes in use: bodies being read, messages waiting for their commit, and responses being built."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._shares = Shares()

    def has(self, size: int, environment: int = 0) -> bool:
        """Return whether that much memory is available to the environment now."""
        return self._shares.may_take(environment, size, self.limit - self.used, self.limit)

    def take(self, size: int, environment: int = 0) -> None:
        """Take memory, or raise `Overloaded` if it is not available. Every `take` needs a `give`."""
        if not self.has(size, environment):
            raise Overloaded("The server's memory budget is used up; try again shortly.", retry_after=1)
        self.add(size, environment)

    def add(self, size: int, environment: int = 0) -> None:
        """Take memory without a check, in the same turn of the event loop in which `has` returned True."""
        self.used += size
        self._shares.take(environment, size)

    def give(self, size: int, environment: int = 0) -> None:
        self.used -= size
        self._shares.give(environment, size)

    @contextmanager
    def held(self, size: int, environment: int = 0) -> Iterator[None]:
        self.take(size, environment)
        try:
            yield
        finally:
            self.give(size, environment)
