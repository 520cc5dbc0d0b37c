"""The database's time, as this process knows it: never ahead of it.

A decision is made with this estimate and written only if the database agrees; see `Step`'s bounds.
"""

from __future__ import annotations

import time


class Clock:
    """One per cell. Each answer that carries the database's clock brings the estimate closer."""

    def __init__(self) -> None:
        self._ahead: float | None = None
        """Database minus monotonic, in milliseconds. The database's clock was read before its answer came."""

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
        """The database disagreed: its clock was set back, or this process was asleep."""
        self._ahead = clock_ms - time.monotonic() * 1000
