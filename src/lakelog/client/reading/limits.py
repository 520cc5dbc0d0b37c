"""Limits of a read as people write them: a time, how long ago, or an offset by partition."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from lakelog.errors import InvalidRequest

_UNITS = {"ms": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_SHORT = {"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day", "w": "week"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII)

Time = str | datetime | timedelta


def time_of(text: Time | None, name: str, now: datetime | None = None) -> datetime | None:
    """Return the time of a text: `1 day` or `90 min` ago, or a time in ISO 8601, in UTC if it has no zone."""
    if text is None:
        return None
    if isinstance(text, timedelta):
        return (now or datetime.now(UTC)) - text
    if isinstance(text, datetime):
        if text.tzinfo is None:
            raise InvalidRequest(f"`{name}` needs a zone: give an aware datetime.")
        return text
    seconds = _seconds(_duration_text(text))
    try:
        if seconds is not None:
            return (now or datetime.now(UTC)) - timedelta(seconds=seconds)
        time = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"`{name}` must be a time such as 2026-01-31T12:00:00Z, or how long ago, such as '1 day' or '90 min'; "
            f"not {text!r}."
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def duration_of(text: str) -> float | None:
    """Return the seconds of a duration such as `15 min` or `1h30m`; None if the text is not a duration."""
    return _seconds(text.strip().lower())


def is_relative(text: Time) -> bool:
    """Return whether a time is how long ago."""
    if isinstance(text, str):
        return _seconds(_duration_text(text)) is not None
    return isinstance(text, timedelta)


def offsets_of(given: str | Mapping[int, int] | None, name: str) -> dict[int, int] | None:
    """Return offsets by partition from `{"0": 12, "1": 40}`.

    Other partitions are read from their start, or to their end.
    """
    if given is None:
        return None
    try:
        found = json.loads(given) if isinstance(given, str) else given
        offsets = {int(partition): offset for partition, offset in found.items()}
    except (ValueError, TypeError, AttributeError):
        offsets = {-1: -1}
    if not all(partition >= 0 and _is_offset(offset) for partition, offset in offsets.items()):
        raise InvalidRequest(f'`{name}` gives an offset for each partition, as {{"0": 12, "1": 40}}; not {given!r}.')
    return offsets


def _is_offset(offset: object) -> bool:
    return isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0


def _duration_text(text: str) -> str:
    return text.strip().lower().removesuffix(" ago")


def _seconds(text: str) -> float | None:
    """Return the duration of `1 day`, `1h30m` or `90 minutes`; None if the text is not a duration."""
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        return None
    total = 0.0
    for number, unit in parts:
        word = _SHORT.get(unit, unit)
        seconds = _UNITS.get(word) or _UNITS.get(word.removesuffix("s"))
        if seconds is None:
            return None
        total += float(number) * seconds
    return total
