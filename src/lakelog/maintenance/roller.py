"""Creates a new hot table when the active one is large or old, compacts old ones and drops the retired.

A compaction copies what survives in a mostly retired table to a kept table. Separate tables for topics with and without
retention would need several active tables, and several statements for one commit.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import timedelta

from lakelog.engine import Engine
from lakelog.maintenance.agent import Agent
from lakelog.meters import HOT_TABLES
from lakelog.reporting import counted, log_event
from lakelog.storage.compaction import ROLL_BYTES
from lakelog.storage.store import PartitionStore

_log = logging.getLogger(__name__)

MAX_AGE = timedelta(hours=1)
_EMPTY_BYTES = 64 << 10
"""Size of an empty hot table. A table up to this size is not rolled because of its age."""


class Roller(Agent):
    def __init__(
        self, engine: Engine, *, every_seconds: float = 15.0, max_bytes: int = ROLL_BYTES, max_age: timedelta = MAX_AGE
    ) -> None:
        super().__init__(engine.cells, every_seconds=every_seconds)
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._looked_at: dict[int, int] = {}
        """By cell, the last hot table that a compaction looked at."""

    async def work(self) -> None:
        elected = await self.elected()
        for cell in HOT_TABLES.keys() - elected.keys():
            del HOT_TABLES[cell]
        for cell, store in elected.items():
            # First, because a failure to roll must not keep retired tables.
            await self.attempt(self._drop(cell, store))
            await self.attempt(self._compact(cell, store))
            await self.attempt(self._roll(cell, store))
            await self.attempt(self._count(cell, store))

    async def _drop(self, cell: int, store: PartitionStore) -> None:
        for roll in await store.rolls_drop():
            message = f"Cell {cell}: hot table {roll} dropped."
            log_event(_log, logging.INFO, "roll_dropped", message, cell=cell, roll=roll)

    async def _count(self, cell: int, store: PartitionStore) -> None:
        HOT_TABLES[cell] = asdict(await store.rolls_count())

    async def _compact(self, cell: int, store: PartitionStore) -> None:
        done = await store.rolls_compact(self._looked_at.get(cell, 0), table_bytes=self._max_bytes)
        self._looked_at[cell] = done.last or 0
        if done.bytes:
            message = f"Cell {cell}: {counted(done.bytes, 'byte')} copied from hot tables that are mostly retired."
            log_event(_log, logging.INFO, "rolls_compacted", message, cell=cell, bytes=done.bytes)
            await self._drop(cell, store)

    async def _roll(self, cell: int, store: PartitionStore) -> None:
        active = await store.roll_active()
        old = await store.clock() - active.created_at > self._max_age and active.bytes > _EMPTY_BYTES
        if old or active.bytes > self._max_bytes:
            roll = await store.roll(expected=active.roll)
            message = f"Cell {cell}: hot table {roll} begins."
            log_event(_log, logging.INFO, "roll_begun", message, cell=cell, roll=roll)
            await self._drop(cell, store)
