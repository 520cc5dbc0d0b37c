"""Removes dead letters that exceed the retention of their group, in bounded statements.

`lakelog.maintenance` decides when, and in which cells.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from lakelog.model.group import Group
from lakelog.model.topic import Topic
from lakelog.reporting import counted, log_event
from lakelog.storage.store import Catalog, PartitionStore

_PER_STATEMENT = 1000
_COUNTED = 200_000
"""About how many index entries one statement reads to count the dead letters of its partitions."""
_GROUPS = 1000
_log = logging.getLogger(__name__)


class DeadLetterExpiry:
    """The retention of the dead letters of all groups.

    Attributes:
        removed: How many dead letters this process has removed since its start.
    """

    def __init__(self, catalog: Catalog, cells: Mapping[int, PartitionStore]) -> None:
        self._catalog = catalog
        self._cells = cells
        self.removed = 0

    async def limited(self) -> list[tuple[Group, Topic]]:
        """Return the groups of all environments that limit their dead letters, with each topic that they read."""
        found: list[tuple[Group, Topic]] = []
        groups = await self._catalog.groups.group_list_retention(limit=_GROUPS)
        while groups:
            by_id = {group.group_id: group for group in groups}
            read = await self._catalog.groups.group_topic_list(*groups)
            found += [(by_id[group_topic.group_id], topic) for topic, group_topic in read]
            groups = await self._catalog.groups.group_list_retention(after=groups[-1].group_id, limit=_GROUPS)
        return found

    async def expire(self, group: Group, topic: Topic, cell: int) -> int:
        """Remove dead letters of the group in the topic's partitions of a cell, and return how many."""
        retention, removed = group.settings.dead_letter_retention, 0
        pids = topic.pids_by_cell().get(cell, [])
        size = max(1, _COUNTED // ((retention.max_count or 0) + _PER_STATEMENT))
        for first in range(0, len(pids), size):
            some, count = pids[first : first + size], _PER_STATEMENT
            while count == _PER_STATEMENT:
                groups = self._cells[cell].groups
                count = await groups.dead_expire(group.group_id, some, retention, limit=_PER_STATEMENT)
                removed += count
                self.removed += count
        if removed:
            _report(group, topic, cell, removed)
        return removed


def _report(group: Group, topic: Topic, cell: int, removed: int) -> None:
    message = f"Group {group.name}: retention removed {counted(removed, 'dead letter')} of topic {topic.name}."
    log_event(
        _log,
        logging.INFO,
        "dead_letters_expired",
        message,
        group=group.name,
        project=group.scope.project,
        environment=group.scope.environment,
        topic=topic.name,
        cell=cell,
        dead_letters=removed,
    )
