"""Publishes delayed messages when they are due.

One process of a cell works. Its lease is short, because messages wait while no process works, and it is renewed only
while messages are due soon: an installation without delayed messages writes nothing.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from lakelog.engine import Engine
from lakelog.maintenance.agent import Agent
from lakelog.maintenance.election import Election
from lakelog.storage.background import is_background

_LEASE = timedelta(milliseconds=500)
_RENEW_SECONDS = 0.15
_RETRY_SECONDS = 0.1
"""How long to wait before the next attempt while another process works."""
_SOON_SECONDS = 0.25
"""How long to sleep at most while messages are due soon: another server may schedule a message with a shorter delay."""


class ScheduledDeliverer(Agent):
    def __init__(self, engine: Engine, *, every_seconds: float = 1.0) -> None:
        super().__init__(engine.cells, every_seconds=every_seconds)
        self._election = Election(type(self).__name__, every_seconds=every_seconds, lease=_LEASE)
        self._delivery = engine.scheduled_delivery
        self._pauses: dict[int, float] = {}
        """The seconds until the next look at a cell."""
        self._won_at: dict[int, float] = {}
        """When this process last won the election of a cell, in monotonic time."""

    async def work(self) -> None:
        """Publish what is due, in all cells."""
        for cell in self._cells:
            await self.attempt(self._delivery.deliver_all(cell))

    async def _loop(self) -> None:
        is_background.set(True)
        # A cell that does not respond must not delay the messages of the others.
        await asyncio.gather(*map(self._serve, self._cells))

    async def _serve(self, cell: int) -> None:
        while True:
            self._pauses[cell] = self._every_seconds
            await self.attempt(self._pass(cell))
            await self._delivery.wait(cell, self._pauses[cell])

    async def _pass(self, cell: int) -> None:
        """Publish what is due in the cell if this process is elected, and decide when to look again."""
        seconds = await self._delivery.seconds_until_due(cell)
        if seconds is None or seconds >= self._every_seconds:
            return
        if seconds > 0:
            self._pauses[cell] = min(seconds, _SOON_SECONDS)
            return
        self._pauses[cell] = _RETRY_SECONDS
        while await self._is_elected(cell):
            if await self._delivery.deliver_some(cell) is None:
                self._pauses[cell] = 0.0
                return

    async def _is_elected(self, cell: int) -> bool:
        if time.monotonic() < self._won_at.get(cell, 0.0) + _RENEW_SECONDS:
            return True
        asked_at = time.monotonic()
        is_won = await self._election.is_won(self._cells[cell])
        if is_won:
            self._won_at[cell] = asked_at
        return is_won
