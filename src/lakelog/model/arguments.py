"""Checks of the arguments that callers give: type, range, and what to write instead.

Each function returns the argument. Names of topics and groups are checked in `names`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from lakelog.errors import InvalidRequest

MAX_INTEGER = 2**63 - 1
"""The largest integer that PostgreSQL stores."""


def check_whole(name: str, value: Any, least: int, most: int = MAX_INTEGER) -> int:
    """Return a whole number from `least` to `most`."""
    if type(value) is int and least <= value <= most:
        return value
    wanted = f"of at most {most}" if type(value) is int and value > most == MAX_INTEGER else _range(least, most)
    raise refusal(name, f"a whole number {wanted}", value)


def check_number(name: str, value: Any, least: float, most: float) -> float:
    """Return a number from `least` to `most`."""
    if _is_number(value) and least <= value <= most:
        return float(value)
    raise refusal(name, f"a number {_range(least, most)}", value)


def check_seconds(name: str, value: Any, least: float = 0.0, most: float = math.inf) -> float:
    """Return seconds, given as a number or a timedelta, from `least` to `most` and not infinite."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if _is_number(seconds) and least <= seconds <= most and seconds != math.inf:
        return float(seconds)
    raise refusal(name, f"seconds or a timedelta, {_range(least, most).removeprefix('of ')}", value)


def check_positive_seconds(name: str, value: Any) -> float:
    """Return seconds above zero, given as a number or a timedelta."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if _is_number(seconds) and 0 < seconds < math.inf:
        return float(seconds)
    raise refusal(name, "seconds or a timedelta, above zero", value)


def check_duration(name: str, value: Any, least: timedelta, most: timedelta = timedelta.max) -> timedelta:
    """Return a timedelta from `least` to `most`."""
    if isinstance(value, timedelta):
        if least <= value <= most:
            return value
        if value > most:
            raise InvalidRequest(f"`{name}` must be at most {most.days} days, not {value.days} days.")
        raise InvalidRequest(f"`{name}` must be at least {least.total_seconds():g} s, not {value.total_seconds():g} s.")
    hint = f" Write timedelta(seconds={value})." if _is_number(value) and value >= least.total_seconds() else ""
    raise InvalidRequest(f"`{name}` must be a timedelta of at least {least.total_seconds():g} s, not {value!r}.{hint}")


def check_text(name: str, value: Any) -> str:
    """Return a text."""
    if isinstance(value, str):
        return value
    raise InvalidRequest(f"`{name}` must be a text, not {value!r}.")


def check_flag(name: str, value: Any) -> bool:
    """Return True or False."""
    if isinstance(value, bool):
        return value
    raise InvalidRequest(f"`{name}` must be True or False, not {value!r}.")


def check_time(name: str, value: Any) -> datetime:
    """Return a time with its time zone."""
    if not isinstance(value, datetime):
        raise InvalidRequest(f"`{name}` must be a datetime with a time zone, not {value!r}.")
    if value.tzinfo is None:
        raise InvalidRequest(
            f"`{name}` has no time zone: {value.isoformat(' ')}. Write datetime.now(UTC), or add tzinfo=UTC."
        )
    return value


def check_texts(name: str, value: Any) -> Mapping[str, str]:
    """Return a mapping of text to text."""
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"`{name}` must be a dict of text to text, not {value!r}.")
    for key, text in value.items():
        if not isinstance(key, str):
            raise InvalidRequest(f"The keys of `{name}` must be text, not {key!r}. Write {str(key)!r}.")
        if not isinstance(text, str):
            raise InvalidRequest(
                f"The values of `{name}` must be text: {key!r} has {text!r}. Write {{{key!r}: {str(text)!r}}}."
            )
    return value


def refusal(name: str, wanted: str, value: object) -> InvalidRequest:
    """Return the error that says which argument is wrong, what it must be and what it is."""
    hint = f" Write {name}={value} without quotes." if isinstance(value, str) and _is_numeric(value) else ""
    return InvalidRequest(f"`{name}` must be {wanted}, not {value!r}.{hint}")


def _range(least: float, most: float) -> str:
    return f"of {least:g} or more" if most in (math.inf, MAX_INTEGER) else f"from {least:g} to {most:g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_numeric(text: str) -> bool:
    return text.strip().replace(".", "", 1).isdigit()
