"""Deletes rows that are no longer needed.

These are old head rows, inactive producers, expired idempotency keys, segments below the log start, journal rows that a
snapshot replaces, deleted groups and partitions, cancelled messages, incidents after 30 days, and audit records after
400 days.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

from lakelog.engine import Engine
from lakelog.maintenance.agent import Agent
from lakelog.meters import TRIMS
from lakelog.model.topic import TopicSettings
from lakelog.storage.store import DEFAULT_CELL, PartitionStore


class Trimmer(Agent):
    def __init__(self, engine: Engine, *, every_seconds: float = 20.0) -> None:
        super().__init__(engine.cells, every_seconds=every_seconds)
        self._engine = engine

    async def work(self) -> None:
        elected = await self.elected()
        if elected:
            began = perf_counter()
            await self._trim(elected)
            TRIMS.add(perf_counter() - began)

    async def _trim(self, elected: Mapping[int, PartitionStore]) -> None:
        usual = TopicSettings().idempotency_memory
        memories = {
            topic.incarnation: topic.settings.idempotency_memory
            for topic in await self._engine.catalog.topic_list_all()
            if topic.settings.idempotency_memory != usual
        }
        for store in elected.values():
            await self.attempt(store.trim(memories))
            await self.attempt(store.cold.trim())
            await self.attempt(store.partitions_remove())
            await self.attempt(store.scheduled.trim())
            await self.attempt(store.groups.incidents.incidents_trim())
        if DEFAULT_CELL in elected:
            await self._trim_groups()
            await self.attempt(self._engine.catalog.audit.audit_trim())

    async def _trim_groups(self) -> None:
        """Trim the groups in all cells, by one process: a deleted group is forgotten when all cells are trimmed."""
        groups = self._engine.catalog.groups
        dropped = await groups.group_deleted()
        trimmed: list[int] = []
        for store in self._engine.cells.values():
            await self.attempt(self._trim_cell(store, dropped, trimmed))
        if dropped and len(trimmed) == len(self._engine.cells):
            await groups.group_forget(dropped)

    async def _trim_cell(self, store: PartitionStore, dropped: list[int], trimmed: list[int]) -> None:
        rows = await store.groups.journals_trim(dropped)
        if rows is not None:
            trimmed.append(rows)
