"""Elections in memory."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from lakelog.storage.memory.clock import Clock


class MemoryElections:
    """The `elections` of a `MemoryStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runners: dict[str, tuple[str, datetime]] = {}

    async def elect(self, task: str, runner: str, lease: timedelta) -> bool:
        await asyncio.sleep(0)
        now = self._clock()
        holder, until = self._runners.get(task, (runner, now))
        if holder != runner and until > now:
            return False
        self._runners[task] = (runner, now + lease)
        return True

    async def resign(self, task: str, runner: str) -> None:
        await asyncio.sleep(0)
        if task in self._runners and self._runners[task][0] == runner:
            del self._runners[task]
