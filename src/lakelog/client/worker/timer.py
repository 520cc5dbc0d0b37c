"""One timer for the earliest of many deadlines: a timer for each message would cost more than most handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """Calls `on_due` once at the earliest time that was set; `on_due` sets the next one. For one event loop."""

    def __init__(self, on_due: Callable[[], None]) -> None:
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, at: float) -> None:
        """Fire at this time of the monotonic clock, unless an earlier one is set."""
        if self._timer is not None:
            if at >= self._at:
                return
            self._timer.cancel()
        self._at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._on_due()
