"""Finishes interrupted writes that were decided, and abandons those without a decision for a day."""

from __future__ import annotations

import logging
from datetime import timedelta

from lakelog.engine import Engine
from lakelog.maintenance.agent import Agent
from lakelog.reporting import log_event
from lakelog.storage.staging import StagedWrite
from lakelog.storage.store import DEFAULT_CELL, PartitionStore

_log = logging.getLogger(__name__)

QUIET = timedelta(seconds=30)
"""A write that was staged to more recently than this is left to its writer."""
GIVEN_UP = timedelta(hours=24)


class WriteFinisher(Agent):
    def __init__(
        self, engine: Engine, *, every_seconds: float = 30.0, quiet: timedelta = QUIET, given_up: timedelta = GIVEN_UP
    ) -> None:
        super().__init__(engine.cells, every_seconds=every_seconds)
        self._engine = engine
        self._quiet = quiet
        self._given_up = given_up

    async def work(self) -> None:
        elected = await self.elected()
        if DEFAULT_CELL in elected:
            await self.attempt(self._engine.catalog.writes.trim())
        for store in elected.values():
            await self.attempt(self._look(store))

    async def _look(self, store: PartitionStore) -> None:
        await store.staging.promoted_trim()
        for write in await store.staging.staged_writes(self._quiet):
            await self.attempt(self._settle(write))

    async def _settle(self, write: StagedWrite) -> None:
        writes = self._engine.catalog.writes
        decision = await writes.find(write.incarnation, write.write_id)
        if decision is None and write.age >= self._given_up:
            # Decide first, then delete: a late decision must not find only a part of the staged batches.
            decision = await writes.abandon(write.incarnation, write.write_id)
            if decision.is_abandoned:
                message = f"Write {write.write_id} of Spark was abandoned: staged {write.age} ago and never decided."
                log_event(_log, logging.WARNING, "write_abandoned", message, write_id=write.write_id)
        if decision is not None:
            await self._engine.writes.finish(decision)
