"""Counts of slow work in this process, for metrics: how often it ran, for how long, and with how many items.

They are plain numbers, because a commit must not wait for a metric, and because storage does not know the server.
"""

from __future__ import annotations

from collections.abc import Mapping


class Meter:
    """The work of one kind since the process started."""

    __slots__ = ("count", "items", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.items = 0
        self.seconds = 0.0

    def add(self, seconds: float, items: int = 0) -> None:
        """Count one run that succeeded."""
        self.count += 1
        self.seconds += seconds
        self.items += items


APPENDS = Meter()
"""Commits of messages; the items are messages."""
GROUP_COMMITS = Meter()
"""Commits of group progress; the items are partitions."""
CONFLICTS = Meter()
"""Group progress that had to be decided again, because another server had changed it."""
CONNECTION_WAITS = Meter()
"""Statements that waited for a connection to a database."""
TRIMS = Meter()
"""Passes that delete rows which are no longer needed."""
HOT_TABLES: dict[int, Mapping[str, int]] = {}
"""Hot tables by what keeps them, of each cell whose tables this process maintains."""
