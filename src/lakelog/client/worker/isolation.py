"""A lock that lets handlers run at the same time, but a suspect alone in the process.

A suspect is a message whose last owner died while it held the message. If the process dies again, the suspect must be
the only message that ran, so that it is known to be the cause.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

from lakelog.client import processes

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class IsolationLock:
    """The lock of this process for all its workers and event loops. A waiting suspect goes before new handlers."""

    def __init__(self) -> None:
        self.reset_after_fork()
        processes.after_fork(self)

    def reset_after_fork(self) -> None:
        self._guard = threading.Lock()
        self._running = 0
        self._wanting = 0
        self._alone = False
        self._waiters: list[_Waiter] = []

    async def enter(self) -> None:
        """Wait until a handler may start. Call `leave` when it has ended."""
        while (waiter := self._entered()) is not None:
            await waiter

    def enter_now(self) -> bool:
        """Return whether a handler may start now. If it may, call `leave` when it has ended."""
        with self._guard:
            free = not self._alone and not self._wanting
            self._running += free
            return free

    def leave(self) -> None:
        with self._guard:
            self._running -= 1
            waiters = self._taken() if not self._running else []
        _wake(waiters)

    async def enter_alone(self, seconds: float) -> bool:
        """Wait until nothing else runs. Return False after a timeout; after True, call `leave_alone` at the end."""
        deadline = time.monotonic() + seconds
        with self._guard:
            self._wanting += 1
        try:
            while (waiter := self._entered_alone()) is not None:
                try:
                    async with asyncio.timeout(deadline - time.monotonic()):
                        await waiter
                except TimeoutError:
                    return False
            return True
        finally:
            with self._guard:
                self._wanting -= 1
                waiters = [] if self._alone else self._taken()
            _wake(waiters)

    def leave_alone(self) -> None:
        with self._guard:
            self._alone = False
            waiters = self._taken()
        _wake(waiters)

    def left(self, *, was_alone: bool) -> None:
        """Call `leave_alone` or `leave`."""
        if was_alone:
            self.leave_alone()
        else:
            self.leave()

    def _entered(self) -> asyncio.Future[None] | None:
        with self._guard:
            if not self._alone and not self._wanting:
                self._running += 1
                return None
            return self._waiter()

    def _entered_alone(self) -> asyncio.Future[None] | None:
        with self._guard:
            if not self._alone and not self._running:
                self._alone = True
                return None
            return self._waiter()

    def _waiter(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiters.append((loop, future))
        return future

    def _taken(self) -> list[_Waiter]:
        waiters, self._waiters = self._waiters, []
        return waiters


def _wake(waiters: list[_Waiter]) -> None:
    for loop, future in waiters:
        # A loop that has ended has no waiters left.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


isolation_lock = IsolationLock()
