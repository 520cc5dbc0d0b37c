"""All groups, with their lag, age and status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

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


async def _show(view: View) -> Values:
    groups = await view.log.groups()
    sorting = Sorting.of(view.query, SORTS)
    found = sort_groups(groups, sorting)
    return {"groups": found, "total": len(groups), "sorting": sorting}


PAGE = Page(name="groups", path="groups", title="Groups", show=_show, menu="Groups", key="g")
