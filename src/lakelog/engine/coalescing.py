"""The coalescing pump: requests that arrive while a call is running form the next one.

The pump only runs calls. The caller keeps the waiting requests, and decides how many of them go into one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context

from lakelog.storage.turns import NO_ENVIRONMENT, current_environment


class CoalescingPump:
    """Runs at most `limit` calls at a time. An idle pump starts a call immediately.

    `take` returns the next call, for as many waiting requests as it chooses; None if nothing waits.
    """

    def __init__(self, take: Callable[[], Coroutine[object, object, None] | None], limit: int = 1) -> None:
        self._take = take
        self._limit = limit
        self._is_scheduled = False
        self.tasks: set[asyncio.Task[None]] = set()
        """The running calls."""

    @property
    def is_idle(self) -> bool:
        return not self.tasks and not self._is_scheduled

    def wake(self) -> None:
        """Start a call in the event loop's next iteration, so that requests that arrive together share it."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    async def drain(self) -> None:
        """Wait until no call is running and nothing waits."""
        while not self.is_idle:
            await asyncio.gather(*self.tasks, return_exceptions=True)
            await asyncio.sleep(0)

    def _pump(self) -> None:
        self._is_scheduled = False
        while len(self.tasks) < self._limit and (call := self._take()) is not None:
            # It works for many environments, and must not wait in the queue of the one that woke the pump.
            context = copy_context()
            context.run(current_environment.set, NO_ENVIRONMENT)
            task = asyncio.get_running_loop().create_task(call, context=context)
            self.tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        # In this order: a call that still counts as running would keep its slot from the next one.
        self.tasks.discard(task)
        self._pump()
