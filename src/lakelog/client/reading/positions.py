"""The position at which a fetch starts, as callers write it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_time, check_whole, refusal
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest, Position

Offset = int | Literal["earliest", "latest"]
Start = Literal["earliest", "latest"] | datetime | int | Mapping[int, int]


def position_of(offset: Offset | None = None, time: datetime | None = None, last: int | None = None) -> Position:
    """Return the position of the given argument; the log start if none is given. At most one may be given."""
    if (offset is not None) + (time is not None) + (last is not None) > 1:
        raise InvalidRequest("Give an offset, a time or `last`, not several.")
    if time is not None:
        return AtTime(check_time("time", time))
    if last is not None:
        return Latest(check_whole("last", last, 0))
    if offset is None or offset == "earliest":
        return Earliest()
    if offset == "latest":
        return Latest()
    if type(offset) is not int or offset < 0:
        raise refusal("offset", "a whole number of 0 or more, 'earliest' or 'latest'", offset)
    return AtOffset(offset)


def start_of(start: Start, partition: int) -> Position:
    """Return the start in a partition.

    A number means that many messages before the end; a mapping has offsets by partition.
    """
    if isinstance(start, datetime):
        return AtTime(check_time("from_", start))
    if isinstance(start, Mapping):
        if any(type(each) is not int or each < 0 for each in start):
            raise InvalidRequest(
                f"The keys of `from_` must be partitions, which are whole numbers of 0 or more: {dict(start)!r}."
            )
        return position_of(start[partition]) if partition in start else Earliest()
    if type(start) is int:
        return position_of(last=start)
    if start not in ("earliest", "latest"):
        wanted = "'earliest', 'latest', a datetime, a number of messages from the end, or a dict of partition to offset"
        raise refusal("from_", wanted, start)
    return position_of(start)
