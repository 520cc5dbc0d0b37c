"""Rates per second, as written by users."""

from __future__ import annotations

import re

from lakelog.errors import InvalidRequest

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|min|m|h))?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def rate_of(text: str) -> float:
    """Return the rate per second of `100/s`, `30/m` (or `30/min`), `500/h` or a plain number; more than zero."""
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) / _SECONDS[match[2] or "s"] if match else 0.0
    if rate <= 0:
        raise InvalidRequest(f"{text!r} is not a rate. Write it as 100/s or 30/m.")
    return rate
