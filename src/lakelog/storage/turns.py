"""Turns of environments at the connections of a database.

Callers wait in one queue per environment. With a single queue, an environment with thousands of calls would make every
other one wait behind them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar

NO_ENVIRONMENT = 0
"""Background work, and callers that are not known yet."""
current_environment: ContextVar[int] = ContextVar("current_environment", default=NO_ENVIRONMENT)
"""The environment of the call that runs."""


class FairSemaphore:
    """A semaphore whose waiting environments take turns; the callers of one environment keep their order."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}

    async def acquire(self) -> None:
        """Wait for a place. Every `acquire` that returns needs a `release`."""
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(current_environment.get(), deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The place was given to this caller just before it was cancelled.
                self.release()
            raise

    def release(self) -> None:
        """Give the place to the next environment, or back."""
        while self._waiting:
            environment, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            del self._waiting[environment]
            if turns:
                self._waiting[environment] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
