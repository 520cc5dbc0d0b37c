"""All groups, with their lag, age and status, and the lag of the last hour as a small chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def sort_groups(groups: Sequence[GroupSummary], sorting: Sorting) -> list[GroupSummary]:
    """Return the groups that match the search text, in the chosen order."""
    return sort_and_filter(groups, sorting, SORTS, lambda group: group.name)


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
    groups = await view.log.groups(lags=True)
    sorting = Sorting.of(view.query, SORTS)
    found = sort_groups(groups, sorting)
    sparks = {group.name: spark_of(group, view.now) for group in found}
    return {"groups": found, "sparks": sparks, "total": len(groups), "sorting": sorting}


PAGE = Page(name="groups", path="groups", title="Groups", show=_show, menu="Groups", key="g")
