"""The event loop of a consumer: the caller's own for asyncio, a thread's for the sync client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from lakelog.client._runtime import async_within
from lakelog.client.loops import LoopThread
from lakelog.errors import InvalidRequest

R = TypeVar("R")


class AsyncConsumerLoop:
    """Runs the calls of a consumer in the event loop in which it was first used."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, R]) -> R:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return await async_within(self._loop, work)

    @property
    def caller(self) -> object:
        """The task that calls."""
        return asyncio.current_task()

    def stop(self) -> None:
        pass


class ConsumerLoop:
    """Runs the calls of a consumer in a thread with an event loop. Several threads may call."""

    def __init__(self) -> None:
        self._thread = LoopThread("lakelog-consumer")

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        if asyncio._get_running_loop() is not None:
            work.close()
            raise InvalidRequest(
                "This consumer blocks its thread, and this thread runs an event loop. Use a client of "
                "lakelog.connect_async()."
            )
        future = self._thread.submit(work)
        try:
            return future.result()
        except BaseException:
            # Also when a signal interrupts the caller: the result is not used any more.
            future.cancel()
            raise

    @property
    def caller(self) -> object:
        """The thread that calls."""
        return threading.get_ident()

    def stop(self) -> None:
        self._thread.stop()
