"""Raises the log start of partitions that exceed the retention of their topic, and finishes interrupted deletes.

Readers see the new log start immediately. The bytes are deleted when their hot table is dropped (`roller`).
"""

from __future__ import annotations

import logging

from lakelog.engine import Engine
from lakelog.maintenance.agent import Agent
from lakelog.model.topic import Retention, Topic
from lakelog.reporting import counted, log_event
from lakelog.storage.store import DEFAULT_CELL, Head, PartitionStore

_log = logging.getLogger(__name__)


class RetentionEnforcer(Agent):
    def __init__(self, engine: Engine, *, every_seconds: float = 60.0, is_enforced: bool = True) -> None:
        super().__init__(engine.cells, every_seconds=every_seconds)
        self._engine = engine
        self._is_enforced = is_enforced

    async def work(self) -> None:
        elected = await self.elected()
        if DEFAULT_CELL in elected:
            for topic in await self._engine.catalog.topic_deleted():
                await self.attempt(self._engine.topics.close_deleted(topic))
        if not self._is_enforced:
            return
        for topic in await self._engine.catalog.topic_list_all() if elected else ():
            if topic.settings.retention != Retention():
                await self._enforce(topic, elected)

    async def _enforce(self, topic: Topic, elected: dict[int, PartitionStore]) -> None:
        for cell, pids in topic.pids_by_cell().items():
            # Other cells, and those that are not configured here yet, are left to the servers that have them.
            if cell in elected:
                await self.attempt(self._enforce_in(elected[cell], topic, pids))

    async def _enforce_in(self, store: PartitionStore, topic: Topic, pids: list[int]) -> None:
        starts = []
        for head in await store.heads_read(pids):
            start = await _log_start(store, head, topic.settings.retention)
            if start > head.log_start:
                starts.append((head.pid, start))
        if starts:
            removed = sum(count for _, count in await store.log_start_raise(starts))
            message = f"Topic {topic.name}: retention removed {counted(removed, 'message')}."
            log_event(_log, logging.INFO, "retention_enforced", message, topic=topic.name, messages=removed)


async def _log_start(store: PartitionStore, head: Head, retention: Retention) -> int:
    """Return the lowest offset that all limits allow. Age and bytes remove whole batches, count exact messages."""
    start = head.log_start
    if head.log_start == head.next_offset:
        return start
    if retention.max_count is not None:
        start = max(start, head.next_offset - retention.max_count)
    if retention.max_age is not None:
        start = max(start, await store.offset_at_time(head.pid, await store.clock() - retention.max_age))
    if retention.max_bytes is not None:
        start = max(start, await store.offset_at_bytes(head.pid, retention.max_bytes))
    return start
