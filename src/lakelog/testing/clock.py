"""A clock that moves only when a test advances it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from lakelog.errors import InvalidRequest


class ManualClock:
    """The time of an installation in memory. It moves only by `advance`.

    It begins at the machine's time, in whole milliseconds.
    """

    def __init__(
        self, moving: Callable[[], object] = lambda: None, advanced: Callable[[], object] = lambda: None
    ) -> None:
        now = datetime.now(UTC)
        self._now = now.replace(microsecond=now.microsecond // 1000 * 1000)
        self._moving = moving
        self._advanced = advanced

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._now

    def advance(
        self,
        duration: timedelta | None = None,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Move the time forward and return it. Retries, leases, sessions and delayed messages until then are due.

        Handlers do not run: call `drain` afterwards.

        Args:
            duration: How far to move. Default: no further than the other arguments say.
            days: Days to add to the duration. Default: 0.
            hours: Hours to add to the duration. Default: 0.
            minutes: Minutes to add to the duration. Default: 0.
            seconds: Seconds to add to the duration. Default: 0.

        Raises:
            InvalidRequest: The sum is not greater than zero.
        """
        total = (duration or timedelta()) + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if total <= timedelta():
            raise InvalidRequest("The clock moves forward only: give a duration greater than zero.")
        self._moving()
        self._now += total
        self._advanced()
        return self._now

    def __repr__(self) -> str:
        return f"ManualClock({self._now.isoformat()})"
