"""Times of a database clock: milliseconds since 1970 inside, aware datetimes in the values that callers see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, overload

import msgspec
from msgspec import Meta

from lakelog.errors import InvalidRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
_LAST_MS = 253_402_300_799_000
"""The last second of the year 9999, which is the last that a datetime can hold."""
_TIME = msgspec.json.Decoder(Annotated[datetime, Meta(tz=True)])


@overload
def to_time(ms: int) -> datetime: ...
@overload
def to_time(ms: int | None) -> datetime | None: ...
def to_time(ms: int | None) -> datetime | None:
    """Return milliseconds since 1970 as a time in UTC; None for None."""
    return None if ms is None else EPOCH + timedelta(milliseconds=min(ms, _LAST_MS))


def to_ms(time: datetime) -> int:
    """Return a time as milliseconds since 1970."""
    return round(time.timestamp() * 1000)


def to_utc(name: str, time: datetime) -> datetime:
    """Return the time in UTC. A time that UTC cannot hold raises `InvalidRequest`."""
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise InvalidRequest(f"`{name}` is outside of the years 1 to 9999.") from error


def parse_time(name: str, text: str) -> datetime:
    """Return an RFC 3339 time in UTC.

    Args:
        name: The name of the argument, for the error.
        text: The time with its offset. A plus sign that was not escaped in a URL arrives as a space, and is accepted.
    """
    quoted = msgspec.json.encode(text.strip().replace(" ", "+"))
    try:
        return to_utc(name, _TIME.decode(quoted))
    except msgspec.MsgspecError as error:
        raise InvalidRequest(
            f"`{name}` is not an RFC 3339 time with an offset, such as 2026-01-31T12:00:00Z: {error}."
        ) from error
