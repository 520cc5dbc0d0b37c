"""The event loops of consumers and handlers, for the calls of programs in other threads or loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from lakelog.client._runtime import async_within, within
from lakelog.client.loops import LoopThread
from lakelog.errors import InvalidRequest

R = TypeVar("R")


class AsyncCallLoop(Protocol):
    """The event loop of the messages that a program or a handler holds."""

    async def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run the work in the event loop, and return its result."""
        ...


class CallLoop(Protocol):
    """The event loop, in another thread, of the messages that a program or a handler holds."""

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run the work in the event loop, and return its result."""
        ...


class AsyncHandlerLoop:
    """Runs the calls of a coroutine handler in the worker's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def run(self, work: Coroutine[Any, Any, R]) -> R:
        return await async_within(self._loop, work)


class HandlerLoop:
    """Runs the calls of a plain handler, which has a thread, in the worker's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        return within(self._loop, work)


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
