"""How long handlers may run, and how long the keeper extends the leases of their messages.

One timer watches the deadlines of all handlers: a timer for each handler would cost more than most handlers do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.worker.lease_keeper import LeaseKeeper
from lakelog.client.worker.leased_message import LeasedMessage, WorkerLease
from lakelog.client.worker.metrics import HandlerDurations


class DeadlineTimer:
    """Calls `on_due` once at the earliest time that was set; `on_due` sets the next one. Use it in one event loop."""

    def __init__(self, on_due: Callable[[], None]) -> None:
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, at: float) -> None:
        """Fire at this time of the monotonic clock, unless an earlier one is set."""
        if self._timer is not None:
            if at >= self._at:
                return
            self._timer.cancel()
        self._at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._on_due()


class Started(Protocol):
    """One or several messages of a lease that a handler or a program gets. The first one has the deadline of all."""

    started: float

    @property
    def lease(self) -> WorkerLease: ...

    @property
    def message(self) -> ReceivedMessage[Any]: ...


Late = Callable[[LeasedMessage, "asyncio.Future[Any]"], None]


class Deadlines:
    """The deadlines of one subscription. A message has a deadline until its handler ends or exceeds it."""

    def __init__(self, timeout_seconds: float, keeper: LeaseKeeper, late: Late) -> None:
        self.running: dict[asyncio.Future[Any], LeasedMessage] = {}
        """The handlers that run, including those that have exceeded their deadline."""
        self.durations = HandlerDurations()
        self._timeout = timeout_seconds
        self._keeper = keeper
        self._late = late
        self._timer = DeadlineTimer(self._find_late)

    def begin(self, messages: Iterable[Started]) -> None:
        """Give these messages a deadline, and tell the keeper before any of their handlers starts."""
        now = time.monotonic()
        deadline = now + self._timeout
        last: WorkerLease | None = None
        for leased in messages:
            leased.lease.deadlines[leased.message.offset] = deadline
            leased.started = now
            if leased.lease is not last:
                last = leased.lease
                self.update_keeper(last)
        self._keeper.flush()
        self._timer.set(deadline)

    def ended(self, running: asyncio.Future[Any]) -> LeasedMessage:
        """Return the message of a handler that has ended, and count how long it ran."""
        leased = self.running.pop(running)
        self.durations.observe(time.monotonic() - leased.started)
        return leased

    def moved(self, lease: WorkerLease) -> None:
        """Record that the deadline of a handler changed."""
        self._timer.set(min(lease.deadlines.values()))
        self.update_keeper(lease)

    def update_keeper(self, lease: WorkerLease) -> None:
        """Tell the keeper how long to keep the lease: no longer than its handlers may run."""
        latest = time.monotonic() + self._timeout
        if not lease.stretched and latest - lease.until <= self._timeout / 10:
            return
        until = min(lease.deadlines.values(), default=latest)
        # Not for every message: the updates would cost the keeper more than the handlers cost the worker.
        if abs(until - lease.until) > self._timeout / 10:
            lease.until = until
            self._keeper.prolong(lease.kept, until)

    def stop(self) -> None:
        self._timer.stop()

    def _find_late(self) -> None:
        now, soonest = time.monotonic(), float("inf")
        for running, leased in list(self.running.items()):
            deadline = leased.lease.deadlines.get(leased.message.offset)
            if deadline is None or running.done():
                continue
            if deadline <= now:
                del leased.lease.deadlines[leased.message.offset]
                self.update_keeper(leased.lease)
                self._late(leased, running)
            else:
                soonest = min(soonest, deadline)
        if soonest < float("inf"):
            self._timer.set(soonest)
