"""What all agents share: do the work now and then, never at the same moment as the others, and go on after an error."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable

from lakelog.errors import LakelogError

_log = logging.getLogger(__name__)
# Its own: the application may have seeded the shared one, and would find its numbers changed by our agents.
_chance = random.Random()


class Agent(ABC):
    """A loop around `work`. There is no election: two processes may do the same step, and the second finds it done."""

    def __init__(self, *, every_seconds: float) -> None:
        self._every_seconds = every_seconds
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def work(self) -> None:
        """One pass; must be safe to repeat and to break off anywhere."""

    def start(self) -> None:
        if self._every_seconds > 0:
            self._task = asyncio.create_task(self._loop())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._every_seconds * _chance.uniform(0.75, 1.25))
            await self.attempt(self.work())

    async def attempt(self, step: Awaitable[object]) -> None:
        """One step, whose error is left to the next pass: a cell that is down must not hold up the others."""
        try:
            await step
        except LakelogError as error:
            _log.warning("%s: %s; it goes on at its next pass", type(self).__name__, error)
        except Exception:
            _log.exception("%s failed; it goes on at its next pass", type(self).__name__)
