"""Shows durations, ages, sizes, counts and times to people: in the command line and in the console."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def show_duration(duration: timedelta) -> str:
    """Return the duration in all its units, such as `1h30m`; `0s` for less than a millisecond."""
    rest = round(duration.total_seconds() * 1000)
    parts = []
    for unit, length in _MILLISECONDS.items():
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def show_age(age: timedelta) -> str:
    """Return the age in its largest unit, rounded down: `45s`, `3m`, `2h`, `5d`; `0s` for less than a second."""
    ms = age.total_seconds() * 1000
    unit = next((unit for unit in ("d", "h", "m") if ms >= _MILLISECONDS[unit]), "s")
    return f"{max(0, int(ms // _MILLISECONDS[unit]))}{unit}"


def show_since(time: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago a time was, formatted by `show_age`; an empty text for None."""
    return "" if time is None else show_age((now or datetime.now(UTC)) - time)


def show_size(size: int) -> str:
    """Return the size in bytes with a unit, such as `1.5 KiB`."""
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def show_count(count: int, thing: str) -> str:
    """Return the count with its noun: `1 group`, `1,200 groups`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def show_time(time: datetime | None) -> str:
    """Return the time in UTC with milliseconds; an empty text for None."""
    return "" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
