"""How long an idle source waits for messages. Spark asks the sources of a query in turn, so each waits for the others.

A source cannot see the others. It notices them by the time that passes until Spark asks it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

ALONE_SECONDS = 1.0
"""The wait of the only source of a query. Without a wait, Spark asks about 90 times per second."""
SHARED_SECONDS = 0.1
"""The wait of one of several sources. It must be longer than `_GAP_SECONDS`, so that they notice each other."""
_GAP_SECONDS = 0.05
"""Spark asks the only source of an idle query again after 10 ms."""


class IdleWait:
    """Chooses the wait of one source.

    Args:
        fixed_ms: The wait in milliseconds, or None to choose it.
        clock: Returns the seconds of a monotonic clock.
    """

    def __init__(self, fixed_ms: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._fixed_ms = fixed_ms
        self._clock = clock
        self._idle_since: float | None = None
        self._is_alone = True

    def begin(self) -> float:
        """Return how long to wait, in seconds, when Spark asks for messages."""
        if self._idle_since is not None and self._clock() - self._idle_since > _GAP_SECONDS:
            self._is_alone = False
        self._idle_since = None
        if self._fixed_ms is not None:
            return self._fixed_ms / 1000
        return ALONE_SECONDS if self._is_alone else SHARED_SECONDS

    def end_idle(self) -> None:
        """Record that there were no messages."""
        self._idle_since = self._clock()
