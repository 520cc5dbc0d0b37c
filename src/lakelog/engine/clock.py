"""The database's time, as this process estimates it: never ahead of the database.

A decision is made with this estimate, and is written only if the database agrees; see the bounds of `Step`.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """The clock of one cell. Each response that carries the database's time improves the estimate."""

    def __init__(self) -> None:
        self._ahead: float | None = None
        """Database time minus monotonic time, in milliseconds. It is never too large, because the database reads its
        clock before its response arrives.
        """

    @property
    def known(self) -> bool:
        return self._ahead is not None

    def now_ms(self) -> int:
        assert self._ahead is not None
        return int(time.monotonic() * 1000 + self._ahead)

    def heard(self, clock_ms: int) -> None:
        ahead = clock_ms - time.monotonic() * 1000
        self._ahead = ahead if self._ahead is None else max(ahead, self._ahead)

    def corrected(self, clock_ms: int) -> None:
        """Reset the estimate because the database disagreed: its clock was set back, or this process was suspended."""
        self._ahead = clock_ms - time.monotonic() * 1000


class ExactClock(Clock):
    """The clock of a store in this process, which needs no estimate. Its time need not pass."""

    def __init__(self, read_ms: Callable[[], int]) -> None:
        super().__init__()
        self._read_ms = read_ms

    @property
    def known(self) -> bool:
        return True

    def now_ms(self) -> int:
        return self._read_ms()

    def heard(self, clock_ms: int) -> None:
        """Do nothing: the store's clock is read directly."""

    def corrected(self, clock_ms: int) -> None:
        """Do nothing: the store's clock is read directly."""
