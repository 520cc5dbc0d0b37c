"""The base of the runners of single messages and of batches: turns, permission to run, late handlers, the end."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from lakelog.client.worker.completion import MessageCompleter
from lakelog.client.worker.deadlines import Deadlines
from lakelog.client.worker.isolation import isolation_lock
from lakelog.client.worker.lease_keeper import WorkerResources
from lakelog.client.worker.lease_taker import LeaseTaker
from lakelog.client.worker.leased_message import LeasedMessage
from lakelog.client.worker.once import OnceGate, check_once
from lakelog.client.worker.options import Subscription
from lakelog.client.worker.prefetch import Prefetch
from lakelog.client.worker.tracebacks import stack_of
from lakelog.errors import LakelogError

_CANCEL_SECONDS = 2.0


class Runner(ABC):
    """Runs the leases of one subscription."""

    def __init__(
        self, subscription: Subscription, taker: LeaseTaker, resources: WorkerResources, changed: Callable[[], None]
    ) -> None:
        self.stopping, self.in_flight = False, 0
        self.prefetch = Prefetch(subscription.options)
        self.deadlines = Deadlines(subscription.options.timeout_seconds, resources.keeper, self._late)
        self._completer = MessageCompleter(subscription, resources.threads)
        self.counts, self.failure_log = self._completer.counts, self._completer.failure_log
        self._subscription = subscription
        self._options = subscription.options
        self._calls_on_ack = bool(subscription.on_ack)
        self._timeout = subscription.options.timeout_seconds
        self._taker = taker
        once = subscription.options.once
        self._once = None if once is None else OnceGate(check_once(once), taker.checks)
        self._threads = resources.threads
        self._changed = changed
        """Called after each answer, and when a slot becomes free."""
        self._free_slots = subscription.options.concurrency
        self._turn_is_due = False
        self._freed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[Any]] = set()
        """The tasks that wait for permission to run."""
        self._overrun = 0
        """The number of handlers that have exceeded their deadline and still run."""

    @property
    def capacity(self) -> int:
        """The number of messages that the worker may hold."""
        return self.prefetch.capacity

    async def drain(self, seconds: float) -> None:
        """Stop. Release messages that have not started, and running messages after that many seconds."""
        self.stopping = True
        self._turn()
        for task in list(self._idle):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.in_flight:
                    self._freed.clear()
                    await self._freed.wait()
        self.deadlines.stop()
        self._cancel_all()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_CANCEL_SECONDS)

    @abstractmethod
    def _turn(self) -> None:
        """Start what may start now. A stopping runner gives back what waits."""

    @abstractmethod
    def _cancel_all(self) -> None:
        """Stop the timers, and cancel tasks and handlers that still run."""

    @abstractmethod
    def _late(self, leased: LeasedMessage, running: asyncio.Future[Any]) -> None:
        """Answer for a handler that exceeds its deadline."""

    def _turn_soon(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    async def _until_allowed(self, turn: Coroutine[Any, Any, bool | None]) -> bool | None:
        """Wait for permission, unless the worker stops."""
        task = asyncio.current_task()
        assert task is not None
        self._idle.add(task)
        try:
            return await turn
        finally:
            self._idle.discard(task)

    async def _extend_alone(self, leased: LeasedMessage) -> bool:
        """Extend the lease of a suspect that holds the lock alone. Return False, without the lock, if it is refused."""
        try:
            await self._taker.sender.submit(leased.extension(alone=True))
        except BaseException as error:
            isolation_lock.leave_alone()
            if not isinstance(error, LakelogError):
                raise
            self._completer.refused(leased, error)
            return False
        return True

    def _overran(self, running: asyncio.Future[Any]) -> TimeoutError:
        """Cancel a late handler if that is possible, count it while it runs, and return the error with its stack."""
        reason = f"the handler did not end within {self._timeout:g} s"
        stack = stack_of(running)
        if self._subscription.handler.is_async:
            running.cancel()
        else:
            reason += "; its thread still runs"
        self._overrun += 1
        running.add_done_callback(self._returned)
        return TimeoutError(reason).with_traceback(stack)

    def _returned(self, running: asyncio.Future[Any]) -> None:
        self._overrun -= 1
        self._changed()
