"""Removes dead letters that exceed the retention of their group. Groups without limits keep all of them."""

from __future__ import annotations

from lakelog.engine import Engine
from lakelog.maintenance.agent import Agent


class DeadLetterExpirer(Agent):
    def __init__(self, engine: Engine, *, every_seconds: float = 60.0) -> None:
        super().__init__(engine.cells, every_seconds=every_seconds)
        self._expiry = engine.dead_letter_expiry

    async def work(self) -> None:
        elected = await self.elected()
        for group, topic in await self._expiry.limited() if elected else ():
            for cell in elected:
                await self.attempt(self._expiry.expire(group, topic, cell))
