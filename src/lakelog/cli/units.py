"""Parses durations, sizes, rates, times and NAME=TEXT pairs for all commands."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

from lakelog.errors import InvalidRequest
from lakelog.model.rate import rate_of

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.ASCII | re.IGNORECASE)
_BYTES = {"": 1} | {
    letter + i: (1024 if i else 1000) ** power for power, letter in enumerate("kmgt", 1) for i in ("", "i")
}


def parse_duration(text: str) -> timedelta:
    """Return the duration of a text such as `7d`, `12h` or `1h30m`; it must be greater than zero."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise typer.BadParameter(f"{text!r} is not a duration; write it as 30s, 15m, 12h or 7d.")
    try:
        duration = timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long a duration.") from None
    if duration <= timedelta(0):
        raise typer.BadParameter("A duration must be greater than zero.")
    return duration


def parse_size(text: str) -> int:
    """Return the bytes of a size such as `10GiB`, `500MB` or `1048576`; at least one."""
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _BYTES[(match[2] or "").lower()]) if match else 0
    if not match:
        raise typer.BadParameter(f"{text!r} is not a size; write it as 500MB or 10GiB.")
    if size <= 0:
        raise typer.BadParameter("A size must be at least one byte.")
    return size


def parse_rate(text: str) -> float:
    """Return the messages per second of a rate such as `100/s` or `30/m`; a bare number is per second."""
    try:
        return rate_of(text)
    except InvalidRequest as error:
        raise typer.BadParameter(error.detail) from None


def parse_share(text: str) -> float:
    """Return the share of a text such as `5%` or `0.05`: above zero, and at most 1."""
    number = text.removesuffix("%")
    try:
        share = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise typer.BadParameter(f"{text!r} is not a share; write it as 5% or 0.05.")
    return share


def parse_time(text: str, now: datetime | None = None) -> datetime:
    """Return the time of a text: RFC 3339, a date, or a duration for that long ago. The default time zone is UTC."""
    if _DURATION.match(text):
        return (now or datetime.now(UTC)) - parse_duration(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; write it as 2026-01-31T12:00:00Z, or as 2h for two hours ago."
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def parse_pairs(pairs: list[str] | None, option: str) -> dict[str, str]:
    """Return the values of a repeated option of the form NAME=TEXT, by name."""
    parsed: dict[str, str] = {}
    for pair in pairs or []:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{pair!r} is not of the form NAME=TEXT.", param_hint=option)
        parsed[name] = text
    return parsed
