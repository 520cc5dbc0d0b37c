"""The clock of the stores in memory: the machine's, unless a test provides one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from lakelog.model.times import EPOCH

Clock = Callable[[], datetime]


def utcnow() -> datetime:
    return datetime.now(UTC)


def milliseconds(time: datetime) -> int:
    """Return whole milliseconds since 1970."""
    return (time - EPOCH) // timedelta(milliseconds=1)
