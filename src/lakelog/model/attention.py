"""Which groups need attention, the most important first. The functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from lakelog.model.progress import GroupSummary

LATE = timedelta(minutes=10)
"""A group whose oldest unfinished message is older needs attention, whatever its status is."""
_ORDER = ("unresponsive", "unreadable", "no-position", "no-consumer", "paused", "full", "retrying")
"""The statuses that need attention, the most important first. A group without messages to read needs none.

The lag of a group with an unresponsive cell may be unknown.
"""


def concerns_of(groups: Sequence[GroupSummary], now: datetime) -> list[GroupSummary]:
    """Return the groups that need attention, the most important first."""
    found = [each for each in groups if _needs_attention(each, now)]
    return sorted(found, key=lambda each: (_rank(each), each.oldest_at or now, each.name))


def _needs_attention(group: GroupSummary, now: datetime) -> bool:
    if group.status in ("paused", "unresponsive"):
        return True
    is_late = group.oldest_at is not None and now - group.oldest_at > LATE
    return group.lag > 0 and (group.status in _ORDER or is_late)


def _rank(group: GroupSummary) -> int:
    return _ORDER.index(group.status) if group.status in _ORDER else len(_ORDER)
