"""The first page: what needs attention, the most important first, and totals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lakelog.console.page import Page, Values, View
from lakelog.model.attention import concerns_of
from lakelog.model.progress import GroupSummary
from lakelog.model.stuck import Stuck, StuckCode

EXPLAINED = 3
"""How many groups are explained, the most important ones."""
SHOWN = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """A group that needs attention, and why it is stuck if that is known."""

    group: GroupSummary
    causes: Sequence[Stuck] = ()


async def _show(view: View) -> Values:
    health, groups, names = await asyncio.gather(
        view.servers.health(), view.log.groups(explained=EXPLAINED), view.log.inventory()
    )
    found = concerns_of(groups, view.now)
    oldest = min((each.oldest_at for each in groups if each.oldest_at is not None), default=None)
    return {
        "health": health,
        "concerns": [_concern(each) for each in found[:SHOWN]],
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


def _concern(group: GroupSummary) -> Concern:
    causes = [each for each in group.stuck or () if each.code is not StuckCode.NOTHING_WRONG]
    return Concern(group=group, causes=causes[:2])


PAGE = Page(name="overview", path="", title="Overview", show=_show, menu="Overview", key="o")
