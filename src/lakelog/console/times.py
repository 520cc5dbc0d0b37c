"""Reads times of forms."""

from __future__ import annotations

from datetime import datetime

from lakelog.model.times import parse_time


def time_of(text: str) -> datetime:
    """Return a time as browsers write it, in UTC, or with its time zone."""
    if len(text) == len("2026-01-31T12:00"):
        text += ":00"
    return parse_time("time", text if text[-1] in "zZ" or "+" in text else f"{text}Z")
