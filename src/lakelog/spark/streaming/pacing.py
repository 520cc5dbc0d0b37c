"""The least size of a micro-batch: it waits for more messages, but not longer than a maximum delay."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Pacing:
    """Decides whether a micro-batch starts. Times are seconds of a monotonic clock."""

    least: int
    delay_seconds: float
    _waits_since: float | None = field(default=None, init=False)

    def starts(self, count: int, now: float) -> bool:
        """Return whether a micro-batch with this number of messages starts now."""
        if not count:
            self._waits_since = None
            return False
        if self._waits_since is None:
            self._waits_since = now
        if count < self.least and now - self._waits_since < self.delay_seconds:
            return False
        self._waits_since = None
        return True
