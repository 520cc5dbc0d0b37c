"""Calls that many callers share: the coalescing pump, and calls of the same thing at the same time.

Requests that arrive while a call of the pump is running form the next one. The pump only runs calls. The caller keeps
the waiting requests, and decides how many of them go into one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from lakelog.storage.turns import NO_ENVIRONMENT, current_environment

Value = TypeVar("Value")


class SharedCalls(Generic[Value]):
    """Runs one call at a time for each key. Callers that arrive while it runs get its result."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Value]] = {}

    async def get(self, key: Hashable, call: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """Return the result of the running call, or of a new one."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(call())
            task.add_done_callback(lambda _: self._running.pop(key))
        # A caller that gives up does not end the call of the others.
        return await asyncio.shield(task)


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
