"""Takes a sample of the figures of all groups once a minute, and drops old samples."""

from __future__ import annotations

import time

from lakelog.engine import Engine
from lakelog.maintenance.agent import Agent
from lakelog.storage.store import DEFAULT_CELL

_TRIM_SECONDS = 600.0


class HistorySampler(Agent):
    """One process of the installation works. It looks several times a minute, so that a successor misses little."""

    def __init__(self, engine: Engine, *, every_seconds: float = 15.0) -> None:
        super().__init__(engine.cells, every_seconds=every_seconds)
        self._sampler = engine.sampler
        self._trimmed_at = float("-inf")

    async def work(self) -> None:
        if DEFAULT_CELL not in await self.elected():
            return
        await self.attempt(self._sampler.sample())
        if time.monotonic() > self._trimmed_at + _TRIM_SECONDS:
            self._trimmed_at = time.monotonic()
            await self.attempt(self._sampler.trim())
