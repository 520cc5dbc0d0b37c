"""Base class of agents: they work at randomised intervals and continue after an error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping

from lakelog.errors import LakelogError, first_line
from lakelog.maintenance.election import Election
from lakelog.reporting import FailureLog
from lakelog.storage.background import is_background
from lakelog.storage.store import PartitionStore

_log = logging.getLogger(__name__)
_RESIGN_SECONDS = 2.0
# Separate from the shared generator: the application may have seeded that one and rely on its sequence.
_chance = random.Random()


class Agent(ABC):
    """Runs `work` in a loop.

    One process works in each cell. It is elected, but a successor may overlap with it, so steps must be repeatable.
    """

    def __init__(self, cells: Mapping[int, PartitionStore], *, every_seconds: float) -> None:
        self._cells = cells
        self._every_seconds = every_seconds
        self._task: asyncio.Task[None] | None = None
        name = type(self).__name__
        self._election = Election(name, every_seconds=every_seconds)
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
            self._task = None
            # Without a resignation, its lease expires.
            with contextlib.suppress(LakelogError, TimeoutError):
                async with asyncio.timeout(_RESIGN_SECONDS):
                    await asyncio.gather(*map(self._election.resign, self._cells.values()))

    async def elected(self) -> dict[int, PartitionStore]:
        """Return the cells in which this process works. A pass outside of the loop works in all cells."""
        if self._task is None:
            return dict(self._cells)
        won: dict[int, PartitionStore] = {}

        async def ask(cell: int, store: PartitionStore) -> None:
            if await self._election.is_won(store):
                won[cell] = store

        for cell, store in self._cells.items():
            await self.attempt(ask(cell, store))
        return won

    async def _loop(self) -> None:
        is_background.set(True)
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
