"""The first page: what needs attention, the most important first, and totals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakelog.console.page import Page, Values, View
from lakelog.errors import LakelogError
from lakelog.model.progress import GroupSummary
from lakelog.model.stuck import Stuck, StuckCode

EXPLAINED = 3
"""How many groups are explained. Each takes one more call."""
SHOWN = 25
LATE = timedelta(minutes=10)
_ORDER = ("unreadable", "no-position", "no-consumer", "paused", "full", "retrying")
"""The statuses that need attention, the most important first. A group without messages to read needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """A group that needs attention, and why it is stuck if that was asked."""

    group: GroupSummary
    causes: Sequence[Stuck] = ()


def concerns_of(groups: Sequence[GroupSummary], now: datetime) -> list[GroupSummary]:
    """Return the groups that need attention, the most important first."""
    found = [each for each in groups if _needs_attention(each, now)]
    return sorted(found, key=lambda each: (_rank(each), each.oldest_at or now, each.name))


def _needs_attention(group: GroupSummary, now: datetime) -> bool:
    if group.status == "paused":
        return True
    is_late = group.oldest_at is not None and now - group.oldest_at > LATE
    return group.lag > 0 and (group.status in _ORDER or is_late)


def _rank(group: GroupSummary) -> int:
    return _ORDER.index(group.status) if group.status in _ORDER else len(_ORDER)


async def _show(view: View) -> Values:
    health, groups, names = await asyncio.gather(view.servers.health(), view.log.groups(), view.log.inventory())
    found = concerns_of(groups, view.now)
    explained = await asyncio.gather(*(_explained(view, each) for each in found[:EXPLAINED]))
    oldest = min((each.oldest_at for each in groups if each.oldest_at is not None), default=None)
    return {
        "health": health,
        "concerns": [*explained, *(Concern(group=each) for each in found[EXPLAINED:SHOWN])],
        "left_out": max(0, len(found) - SHOWN),
        "dying": sorted((each for each in groups if each.dead_letters), key=lambda each: -each.dead_letters)[:5],
        "groups": len(groups),
        "topics": len(names.topics),
        "partitions": names.partitions,
        "members": sum(each.member_count for each in groups),
        "lag": sum(each.lag for each in groups),
        "dead_letters": sum(each.dead_letters for each in groups),
        "oldest_at": oldest,
    }


async def _explained(view: View, group: GroupSummary) -> Concern:
    try:
        stuck = (await view.log.group(group.name).describe()).stuck
    except LakelogError:
        # The group was deleted since, or its cell does not respond. The page is about all groups.
        stuck = ()
    return Concern(group=group, causes=[each for each in stuck if each.code is not StuckCode.NOTHING_WRONG][:2])


PAGE = Page(name="overview", path="", title="Overview", show=_show, menu="Overview", key="o")
