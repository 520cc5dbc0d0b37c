"""Base class of agents: they work at randomised intervals and continue after an error."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable

from lakelog.errors import LakelogError, first_line
from lakelog.reporting import FailureLog

_log = logging.getLogger(__name__)
# Separate from the shared generator: the application may have seeded that one and rely on its sequence.
_chance = random.Random()


class Agent(ABC):
    """Runs `work` in a loop. There is no election: two processes may do the same step, and the second finds it done."""

    def __init__(self, *, every_seconds: float) -> None:
        self._every_seconds = every_seconds
        self._task: asyncio.Task[None] | None = None
        name = type(self).__name__
        self._failures = FailureLog(name, "agent", _log, fields={"agent": name})

    @abstractmethod
    async def work(self) -> None:
        """Do one pass. It must be safe to repeat and to interrupt anywhere."""

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
        """Run one step.

        The next pass repeats a step that fails, so that a cell that is down does not delay the others.
        """
        try:
            await step
        except LakelogError as error:
            # The connection pool logs outages of the database.
            if error.subject.get("unreachable") != "database":
                self._failures.failed(error.detail)
        except Exception as error:
            self._failures.failed(f"{type(error).__name__}: {first_line(error)}", level=logging.ERROR, error=error)
