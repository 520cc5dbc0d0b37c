"""The timeline of a group: its lag, its age and its throughput from the stored history, with marks drawn in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakelog.console.chart import Axis, Chart, chart_of
from lakelog.model.history import GroupHistory, HistoryPoint
from lakelog.model.mark import Mark

SPANS: Mapping[str, timedelta] = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
"""The times that a page offers, by their label. The first one is the default."""
MAX_MARKS = 30
_LABEL_WIDTH = 6.0
"""The room of a label, in percent of the width of a chart."""
_DRAWN, _LISTED = 240, 60
"""The most points of a line, and the most rows of the table behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnMark:
    """A mark on the timeline, with its number and its horizontal position in percent."""

    number: int
    place: float
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimeline:
    """The charts of the page of a group.

    Attributes:
        axis: The time.
        charts: The charts, with the same time.
        marks: The newest marks of the time, the oldest first.
        rows: The points of the table, the newest first.
    """

    axis: Axis
    charts: Sequence[Chart]
    marks: Sequence[DrawnMark]
    rows: Sequence[HistoryPoint]

    @property
    def labels(self) -> list[tuple[float, str]]:
        """The positions and the numbers of marks. Marks that are close together have one label, such as `1-3`."""
        found: list[list[DrawnMark]] = []
        for each in self.marks:
            if found and each.place - found[-1][0].place < _LABEL_WIDTH:
                found[-1].append(each)
            else:
                found.append([each])
        return [
            (some[0].place, str(some[0].number) if len(some) == 1 else f"{some[0].number}-{some[-1].number}")
            for some in found
        ]


def span_of(text: str) -> str:
    """Return the chosen time of a timeline: the first one unless the text is the label of another."""
    return text if text in SPANS else next(iter(SPANS))


def timeline_of(history: GroupHistory, marks: Sequence[Mark]) -> GroupTimeline:
    """Return the timeline of a group.

    Args:
        history: The history of the group.
        marks: The marks of that time, the newest first.
    """
    drawn = thinned(history.points, _DRAWN)
    step = max(
        timedelta(seconds=history.step_seconds),
        timedelta(seconds=history.step_seconds) * -(-len(history.points) // max(1, len(drawn))),
    )
    axis = Axis(history.since, history.until, step)

    def line(value: Callable[[HistoryPoint], float | None]) -> list[tuple[datetime, float | None]]:
        return [(each.at, value(each)) for each in drawn]

    charts = [
        chart_of(axis, "Lag in messages", [("lag", "lag", line(lambda each: each.lag))]),
        chart_of(
            axis, "Oldest unfinished message in seconds", [("age", "age", line(lambda each: each.oldest_seconds))]
        ),
        chart_of(
            axis,
            "Messages per second",
            [
                ("done", "done", line(lambda each: each.done_per_second)),
                ("failed", "failed", line(lambda each: each.failed_per_second)),
            ],
        ),
    ]
    placed = [
        DrawnMark(number=number, place=axis.place(mark.at), mark=mark)
        for number, mark in enumerate(reversed(marks[:MAX_MARKS]), 1)
    ]
    return GroupTimeline(axis=axis, charts=charts, marks=placed, rows=thinned(history.points, _LISTED)[::-1])


def thinned(points: Sequence[HistoryPoint], most: int) -> list[HistoryPoint]:
    """Return at most that many points: of neighbours the largest lag and age, and the mean of their rates."""
    size = -(-len(points) // most)
    return [_joined(points[first : first + size]) for first in range(0, len(points), size)] if points else []


def _joined(points: Sequence[HistoryPoint]) -> HistoryPoint:
    last = points[-1]
    if len(points) == 1:
        return last
    rates = [each.done_per_second for each in points if each.done_per_second is not None]
    return HistoryPoint(
        at=last.at,
        lag=max(each.lag for each in points),
        oldest_seconds=max(each.oldest_seconds for each in points),
        leased=max(each.leased for each in points),
        waiting=max(each.waiting for each in points),
        members=last.members,
        dead_letters=last.dead_letters,
        done_per_second=sum(rates) / len(rates) if rates else None,
        failed_per_second=sum(each.failed_per_second for each in points) / len(points),
    )
