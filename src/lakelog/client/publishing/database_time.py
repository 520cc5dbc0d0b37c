"""The database's time as a client knows it. The database compares expiries with its own clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from lakelog.errors import InvalidRequest


class DatabaseTime:
    """The time from the last description of a topic, continued by the monotonic clock.

    A relative expiry is added to it, so that a client with a wrong clock still sets the right time.
    """

    def __init__(self) -> None:
        self._heard: tuple[datetime, float] | None = None

    @property
    def known(self) -> bool:
        return self._heard is not None

    def heard(self, now: datetime) -> None:
        self._heard = (now, time.monotonic())

    def after(self, duration: timedelta) -> datetime:
        """Return the time after a duration from now. Use the client's own clock if the database's time is not known."""
        now = datetime.now(UTC)
        if self._heard is not None:
            at, heard_at = self._heard
            now = at + timedelta(seconds=time.monotonic() - heard_at)
        try:
            return now + duration
        except OverflowError as error:
            raise InvalidRequest("`expires` ends after the year 9999. Leave it out to keep the message.") from error
