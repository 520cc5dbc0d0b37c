"""Renders templates. Every value is escaped by the template engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from lakelog.console.chart import Axis
from lakelog.model.display import show_age, show_count, show_duration, show_size, show_time
from lakelog.model.progress import show_ranges
from lakelog.model.ranges import to_ranges
from lakelog.model.topic_info import RetentionLimits

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "ago": _ago,
        "clock": _clock,
        "count": show_count,
        "duration": lambda ms: show_duration(timedelta(milliseconds=ms)),
        "number": lambda number: f"{number:,}",
        "prose": _prose,
        "ranges": show_ranges,
        "partitions": lambda numbers: show_ranges(to_ranges(numbers)),
        "rate": _rate,
        "retention": _retention,
        "size": show_size,
        "time": show_time,
        "json": lambda value: json.dumps(value, ensure_ascii=False, indent=2, default=str),
    }
    made.globals["version_of"] = static_version
    return made


def _ago(time: datetime | None, now: datetime | None = None) -> str:
    """Return the age of a time, such as `3m`; a dash if there is none."""
    return "–" if time is None else show_age(max(timedelta(), (now or datetime.now(UTC)) - time))


def _clock(time: datetime, axis: Axis) -> str:
    """Return a time of a chart: the hour and the minute, or the day if the chart shows more than two days."""
    return time.astimezone(UTC).strftime("%b %d" if axis.until - axis.since > timedelta(days=2) else "%H:%M")


def _rate(number: float | None) -> str:
    """Return a number with the digits that matter; a dash if it is unknown."""
    if number is None:
        return "–"
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.2g}"


def _retention(limits: RetentionLimits) -> str:
    """Return which messages a topic keeps."""
    parts = [
        None if limits.max_age_ms is None else show_duration(timedelta(milliseconds=limits.max_age_ms)),
        None if limits.max_count is None else f"{show_count(limits.max_count, 'message')} per partition",
        None if limits.max_bytes is None else f"{show_size(limits.max_bytes)} per partition",
    ]
    return ", ".join(part for part in parts if part is not None) or "everything"


def _prose(text: str) -> Markup:
    """Return a sentence of Lakelog as HTML, with commands between backticks as code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


@cache
def static_version(name: str) -> str:
    """Return a short hash of a static file, so that browsers can keep the file until it changes."""
    return sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def render(template: str, values: Mapping[str, object]) -> str:
    """Return a page as HTML.

    Args:
        template: The name of the template, without `.html`.
        values: The values that the template uses.
    """
    return _environment().get_template(f"{template}.html").render(values)
