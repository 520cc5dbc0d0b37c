"""All groups, with their lag, age and status, and the lag of the last hour as a small chart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakelog.console.chart import Axis, Chart, chart_of
from lakelog.console.page import Page, Values, View
from lakelog.console.tables import Sorting, sort_and_filter
from lakelog.model.progress import GroupSummary

_LAST = datetime.max.replace(tzinfo=UTC)
SORTS: dict[str, Callable[[GroupSummary], object]] = {
    "name": lambda group: group.name,
    "lag": lambda group: -group.lag,
    "oldest": lambda group: group.oldest_at or _LAST,
    "members": lambda group: -group.member_count,
    "dead": lambda group: -group.dead_letters,
    "status": lambda group: group.status,
}


SHOWN = 100
"""How many groups a page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """A small chart of the lag of a group.

    Attributes:
        chart: The chart.
        first: The oldest known lag.
        most: The largest lag.
    """

    chart: Chart
    first: int
    most: int


def spark_of(group: GroupSummary, now: datetime) -> Spark | None:
    """Return the chart of the last hour, which ends with the present lag; None if there is no sample."""
    if not group.lags:
        return None
    step = timedelta(minutes=5)
    last = now - timedelta(minutes=now.minute % 5, seconds=now.second, microseconds=now.microsecond)
    times = [last - step * age for age in range(len(group.lags) - 1, -1, -1)]
    # A missing sample is no gap, unless several are missing.
    known = [(at, lag) for at, lag in zip(times, group.lags, strict=True) if lag is not None]
    points = [*known, (now, group.lag)]
    chart = chart_of(Axis(times[0], now, step), "Lag", [("lag", "lag", points)])
    return Spark(chart=chart, first=points[0][1], most=max(lag for _, lag in points))


async def _show(view: View) -> Values:
    sorting, after = Sorting.of(view.query, SORTS), view.query.get("after", "")
    found = await _found(view, sorting, after)
    shown = found[:SHOWN]
    return {
        "groups": shown,
        "sparks": {group.name: spark_of(group, view.now) for group in shown},
        "sorting": sorting,
        "after": after,
        "has_more": len(found) > SHOWN,
    }


async def _found(view: View, sorting: Sorting, after: str) -> list[GroupSummary]:
    """Return the groups after the one with this name, in the chosen order: those to show, and one if there are more."""
    if sorting.by == "name":
        return await view.log.groups(lags=True, contains=sorting.search, after=after or None, limit=SHOWN + 1)
    # Another order needs the figures of all groups.
    every = sort_and_filter(await view.log.groups(lags=True), sorting, SORTS, lambda group: group.name)
    first = next((place + 1 for place, each in enumerate(every) if each.name == after), 0)
    return every[first : first + SHOWN + 1]


PAGE = Page(name="groups", path="groups", title="Groups", show=_show, menu="Groups", key="g")
