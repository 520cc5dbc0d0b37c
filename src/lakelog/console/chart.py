"""Computes the lines of a chart, which a template draws as SVG. It works without JavaScript and without inline styles.

Positions are in percent of the width, and from 0 (top) to 100 (bottom), so that a chart fits every screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

Sampled = tuple[datetime, float | None]
"""A time and the figure at that time; None if it is unknown."""
TICKS = 4
_GAP = 3
"""Two points that are further apart than this number of steps are not joined."""
_TOP = 4.0
"""The share of the height above the largest figure, in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a chart.

    Attributes:
        label: The name of the line.
        kind: The class of its colour.
        path: The line, as the `d` of an SVG path.
        area: The area below the line.
        dots: Points without neighbours, which a line would not show.
    """

    label: str
    kind: str
    path: str
    area: str
    dots: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of one or several figures over time.

    Attributes:
        title: The title, with the unit.
        top: The figure at the upper edge.
        lines: The lines, of which the last is drawn above the others.
    """

    title: str
    top: float
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Axis:
    """The time of a chart."""

    since: datetime
    until: datetime
    step: timedelta
    """The time between two points."""

    def place(self, at: datetime) -> float:
        """Return the horizontal position of a time, in percent."""
        length = (self.until - self.since) / timedelta(seconds=1) or 1.0
        return round(min(100.0, max(0.0, 100 * (at - self.since).total_seconds() / length)), 2)

    def ticks(self) -> list[tuple[float, datetime]]:
        """Return the positions of a few times, with equal distances."""
        return [
            (round(100 * part / TICKS, 2), self.since + (self.until - self.since) * part / TICKS)
            for part in range(1, TICKS)
        ]


def chart_of(axis: Axis, title: str, series: Sequence[tuple[str, str, Sequence[Sampled]]]) -> Chart:
    """Return a chart.

    Args:
        axis: The time.
        title: The title, with the unit.
        series: The label, the class and the points of each line, the oldest point first.
    """
    largest = max((value for _, _, points in series for _, value in points if value is not None), default=0.0)
    top = round_up(largest)
    return Chart(title=title, top=top, lines=[_line(axis, top, *each) for each in series])


def round_up(value: float) -> float:
    """Return the next number of the form 1, 2 or 5 times a power of ten; 1 for numbers up to 1."""
    if value <= 1:
        return 1.0
    power = 10 ** (len(str(ceil(value))) - 1)
    return float(next(factor * power for factor in (1, 2, 5, 10) if value <= factor * power))


def _line(axis: Axis, top: float, label: str, kind: str, points: Sequence[Sampled]) -> Line:
    parts = list(_parts(axis, top, points))
    long = [part for part in parts if len(part) > 1]
    path = "".join("M" + "L".join(f"{x:g} {y:g}" for x, y in part) for part in long)
    area = "".join(
        f"M{part[0][0]:g} 100L" + "L".join(f"{x:g} {y:g}" for x, y in part) + f"L{part[-1][0]:g} 100Z" for part in long
    )
    return Line(label=label, kind=kind, path=path, area=area, dots=[part[0] for part in parts if len(part) == 1])


def _parts(axis: Axis, top: float, points: Sequence[Sampled]) -> Iterable[list[tuple[float, float]]]:
    """Yield the positions of points that are joined."""
    part: list[tuple[float, float]] = []
    before: datetime | None = None
    for at, value in points:
        is_gap = value is None or (before is not None and at - before > _GAP * axis.step)
        if is_gap and part:
            yield part
            part = []
        if value is not None:
            part.append((axis.place(at), round(100 - (100 - _TOP) * min(value, top) / top, 2)))
            before = at
    if part:
        yield part
