"""Where a fetch begins, as callers write it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

from lakelog.errors import InvalidRequest
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest, Position

Offset = int | Literal["earliest", "latest"]
Start = Literal["earliest", "latest"] | datetime | int | Mapping[int, int]


def position_of(offset: Offset | None = None, time: datetime | None = None, last: int | None = None) -> Position:
    """At most one of the three; none means the log start."""
    if (offset is not None) + (time is not None) + (last is not None) > 1:
        raise InvalidRequest("Give an offset, a time or `last`, not several.")
    if time is not None:
        if time.tzinfo is None:
            raise InvalidRequest("A time needs its zone: give an aware datetime.")
        return AtTime(time)
    if last is not None:
        if last < 0:
            raise InvalidRequest("`last` is how many messages from the end, 0 or more.")
        return Latest(last)
    if offset is None or offset == "earliest":
        return Earliest()
    if offset == "latest":
        return Latest()
    if not isinstance(offset, int) or offset < 0:
        raise InvalidRequest(f"An offset is 0 or more, 'earliest' or 'latest', not {offset!r}.")
    return AtOffset(offset)


def start_of(start: Start, partition: int) -> Position:
    """Where reading of one partition begins; a number means the last so many, a mapping gives offsets by partition."""
    if isinstance(start, datetime):
        return position_of(time=start)
    if isinstance(start, Mapping):
        return position_of(start[partition]) if partition in start else Earliest()
    if isinstance(start, int):
        return position_of(last=start)
    return position_of(start)


def seconds_of(wait: timedelta | float | None) -> float:
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else float(wait or 0.0)
    if seconds < 0:
        raise InvalidRequest("A fetch cannot wait less than no time.")
    return seconds
