"""Notifies caches, waiters and other processes that a partition's log or a group has changed.

Caches are invalidated first, then waiters are woken, then other processes are notified. The module reads and decides
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakelog.engine.waiters import Announcer, Waiters
from lakelog.model.levels import SUPPORTED, FeatureLevel
from lakelog.model.message import PARTITION_BITS, partition_id, partition_of_id
from lakelog.storage.changes import TOPIC_MARK
from lakelog.storage.store import PartitionStore

CACHE_SECONDS = 30.0
"""How long a process trusts what it read of topics and groups, because other processes announce changes."""
DOUBT_SECONDS = 1.0
"""The same while announcements may be missed."""

Invalidate = Callable[[int | None], None]
"""Drop what is cached for one partition id, group id or incarnation; for None, drop everything."""


def topic_number(incarnation: int) -> int:
    """Return the number that announces a change of the topic. To older servers, it is a partition without readers."""
    return partition_id(incarnation, TOPIC_MARK)


class Changes:
    """Sends and receives the notifications of one process, for all cells."""

    def __init__(self, cells: Mapping[int, PartitionStore], level: Callable[[], int] = lambda: SUPPORTED) -> None:
        """Create the hub. `level` returns the feature level of the installation."""
        self.waiters = Waiters()
        self._level = level
        # The default cell shares the database of the catalog. One announcement there reaches all processes.
        self._default = min(cells)
        self._store = cells[self._default]
        self.announcers = {cell: Announcer(store, self.waiters, self._heard) for cell, store in cells.items()}
        self._partition_caches: list[Invalidate] = []
        self._group_caches: list[Invalidate] = []
        self._topic_caches: list[Invalidate] = []

    @property
    def cache_seconds(self) -> float:
        """How long to trust what was read of topics, groups and members, unless a change is announced."""
        # Servers of the first level announce no changes of topics.
        is_announced = self._store.is_listening and self._level() >= FeatureLevel.SECOND
        return CACHE_SECONDS if is_announced else DOUBT_SECONDS

    def add_partition_cache(self, invalidate: Invalidate) -> None:
        """Call `invalidate` with the id of each partition whose log start or end changed."""
        self._partition_caches.append(invalidate)

    def add_group_cache(self, invalidate: Invalidate) -> None:
        """Call `invalidate` with the id of each group that was altered, moved or deleted."""
        self._group_caches.append(invalidate)

    def add_topic_cache(self, invalidate: Invalidate) -> None:
        """Call `invalidate` with the incarnation of each topic that was altered or deleted."""
        self._topic_caches.append(invalidate)

    def partition_moved(self, cell: int, pid: int) -> None:
        """Announce that the start or end of a partition's log changed, other than by a publish."""
        for invalidate in self._partition_caches:
            invalidate(pid)
        self.announcers[cell].grew(pid)

    def group_changed(self, group_id: int) -> None:
        """Announce that a group, its members or its positions changed."""
        for invalidate in self._group_caches:
            invalidate(group_id)
        self.announcers[self._default].grew(-group_id)

    def topic_changed(self, incarnation: int) -> None:
        """Announce that a topic was altered or deleted."""
        for invalidate in self._topic_caches:
            invalidate(incarnation)
        self.announcers[self._default].grew(topic_number(incarnation))

    def start(self) -> None:
        for announcer in self.announcers.values():
            announcer.start()

    async def stop(self) -> None:
        for announcer in self.announcers.values():
            await announcer.stop()

    def heard(self, number: int) -> None:
        """Invalidate caches and wake waiters, because another process changed something; see `ChangeStore.announce`."""
        self._heard(number)
        self.waiters.wake(number)

    def _heard(self, number: int | None) -> None:
        """Invalidate caches after another process announced the number. None invalidates all."""
        if number is None or number < 0:
            for invalidate in self._group_caches:
                invalidate(None if number is None else -number)
        is_topic = number is not None and number >= 0 and partition_of_id(number) == TOPIC_MARK
        if number is None or is_topic:
            for invalidate in self._topic_caches:
                invalidate(None if number is None else number >> PARTITION_BITS)
        if number is None or (number >= 0 and not is_topic):
            for invalidate in self._partition_caches:
                invalidate(number)
