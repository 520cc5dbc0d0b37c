"""Runs handlers until no message is due, with the worker that also runs them in production.

A handler runs in the time of the machine: its `ack_timeout` is real. Everything that the installation decides (retries,
leases, expiry) follows the manual clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from lakelog.client._async.transport import AsyncTransport
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.worker.answers import AnswerSender
from lakelog.client.worker.completion import WorkerCounts
from lakelog.client.worker.handlers import BatchHandler, BatchToHandle, Handler
from lakelog.client.worker.lease_extension import LeaseHolder
from lakelog.client.worker.lease_keeper import WorkerResources
from lakelog.client.worker.leased_message import LeasedMessage
from lakelog.client.worker.options import Subscription
from lakelog.client.worker.polling import Holder, Poll, Poller
from lakelog.client.worker.threads import HandlerThreads
from lakelog.client.worker.worker import SubscriptionWorker
from lakelog.testing.faults import OrderedFaults


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """The outcomes of one `drain`.

    Attributes:
        acked: Messages that were finished, including those that a filter in the program rejected.
        skipped: Messages that were acked without running the handler, because the filter rejected the value.
        failed: Attempts that failed.
        discarded: Messages that handlers discarded.
        dead: Messages that became dead letters.
        errors: The exceptions that handlers raised, in order.
    """

    acked: int = 0
    skipped: int = 0
    failed: int = 0
    discarded: int = 0
    dead: int = 0
    errors: tuple[BaseException, ...] = ()


class Drain:
    """Runs subscriptions until nothing is due for any of them, in the running event loop."""

    def __init__(self, transport: AsyncTransport, faults: OrderedFaults) -> None:
        self._transport = transport
        self._resources = WorkerResources(keeper=NoKeeper())
        self._faults = faults
        self._errors: list[BaseException] = []
        self._pollers: list[DrainPoller] = []

    async def run(self, subscriptions: Sequence[Subscription], seconds: float) -> DrainResult:
        """Run the subscriptions. Raise `TimeoutError` if messages are still due after that many seconds."""
        workers = [self._worker(each) for each in subscriptions]
        try:
            async with asyncio.timeout(seconds):
                for worker in workers:
                    await worker.start()
                await self._until_idle(workers)
        except TimeoutError as error:
            counts = _sum(worker.counts for worker in workers)
            raise TimeoutError(
                f"Messages are still due after {seconds:g} s: {counts.acked} were acked, {counts.failed} attempts "
                "failed. A handler is slow, or publishes a message for each message that it handles."
            ) from error
        finally:
            await asyncio.gather(*(worker.stop(1.0) for worker in workers))
            self._resources.threads.close()
        total = _sum(worker.counts for worker in workers)
        return DrainResult(
            acked=total.acked,
            skipped=total.skipped,
            failed=total.failed,
            discarded=total.discarded,
            dead=total.dead,
            errors=tuple(self._errors),
        )

    def _worker(self, subscription: Subscription) -> SubscriptionWorker:
        observed: Handler
        options = subscription.options
        if isinstance(subscription.handler, BatchHandler):
            observed = ObservedBatchHandler(subscription.handler, self._faults, self._errors)
            # All messages that are due come with one call, so waiting for others would only take time.
            options = replace(options, batch_wait=0)
        else:
            observed = ObservedHandler(subscription.handler, self._faults, self._errors)
        return SubscriptionWorker(
            replace(subscription, handler=observed, options=options),
            self._transport,
            self._resources,
            CallRetryPolicy(),
            self._new_poller,
        )

    def _new_poller(self, holder: Holder, sender: AnswerSender, batch_size: int) -> DrainPoller:
        poller = DrainPoller(holder, sender, batch_size)
        self._pollers.append(poller)
        return poller

    async def _until_idle(self, workers: Sequence[SubscriptionWorker]) -> None:
        """Wait until no worker got a message in a whole round: handlers may publish to topics of each other."""
        failing = [asyncio.create_task(worker.failed()) for worker in workers]
        try:
            while True:
                before = [astuple(worker.counts) for worker in workers]
                idle = asyncio.ensure_future(self._round())
                done, _ = await asyncio.wait([idle, *failing], return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if before == [astuple(worker.counts) for worker in workers]:
                    return
        finally:
            for task in failing:
                task.cancel()
            await asyncio.wait(failing)

    async def _round(self) -> None:
        await asyncio.gather(*(poller.until_idle() for poller in self._pollers))


class DrainPoller(Poller):
    """Makes calls that do not wait for messages, and is idle after a call without messages while none is held."""

    def __init__(self, holder: Holder, sender: AnswerSender, batch_size: int) -> None:
        super().__init__(holder, sender, batch_size)
        self._news = asyncio.Event()
        self._go_on = asyncio.Event()
        self._idle = asyncio.Event()
        self._has_asked = False

    async def until_idle(self) -> None:
        """Ask for messages again, and wait until there are none."""
        self._idle.clear()
        self._go_on.set()
        await self._idle.wait()

    def look(self) -> None:
        """Decide about the next call, after a change."""
        self._news.set()
        super().look()

    async def next(self) -> Poll:
        """Wait until the next call is worthwhile, and return it."""
        while True:
            poll = await super().next()
            if not poll.waits or not self._has_asked:
                self._has_asked = poll.waits
                return replace(poll, waits=False)
            self._has_asked = False
            if self._holder.in_flight:
                self._news.clear()
                await self._news.wait()
            else:
                self._go_on.clear()
                self._idle.set()
                await self._go_on.wait()


class ObservedRuns:
    """Collects the errors of a handler, and lets its next runs fail if the test has ordered that."""

    def __init__(self, faults: OrderedFaults, errors: list[BaseException]) -> None:
        self._faults = faults
        self._errors = errors

    def begin(self, function: Callable[..., Any], start: Callable[[], asyncio.Future[Any]]) -> asyncio.Future[Any]:
        """Start the handler, or return a future with the ordered failure."""
        error = self._faults.take(function)
        if error is None:
            running = start()
        else:
            running = asyncio.get_running_loop().create_future()
            running.set_exception(error)
        running.add_done_callback(self._ended)
        return running

    def _ended(self, running: asyncio.Future[Any]) -> None:
        if not running.cancelled() and (error := running.exception()) is not None:
            self._errors.append(error)


class ObservedHandler(Handler):
    """A handler of single messages whose runs are observed."""

    def __init__(self, handler: Handler, faults: OrderedFaults, errors: list[BaseException]) -> None:
        super().__init__(handler.function)
        self._runs = ObservedRuns(faults, errors)

    def begin(self, value: object, leased: LeasedMessage, threads: HandlerThreads) -> asyncio.Future[Any]:
        """Start the handler, or return a future with the ordered failure."""
        return self._runs.begin(self.function, partial(super().begin, value, leased, threads))


class ObservedBatchHandler(BatchHandler):
    """A batch handler whose runs are observed."""

    def __init__(self, handler: BatchHandler, faults: OrderedFaults, errors: list[BaseException]) -> None:
        super().__init__(handler.function)
        self._runs = ObservedRuns(faults, errors)

    def begin_batch(self, work: BatchToHandle, threads: HandlerThreads) -> asyncio.Future[Any]:
        """Start the handler, or return a future with the ordered failure."""
        return self._runs.begin(self.function, partial(super().begin_batch, work, threads))


class NoKeeper:
    """A keeper that extends no lease: a lease ends when the test advances the clock beyond it."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def begin(self) -> None:
        """Do nothing."""

    async def ready(self) -> None:
        """Return immediately."""

    def keep(self, holder: LeaseHolder, partition: int, token: int, lease_seconds: float, until: float) -> int:
        """Return a new number."""
        return next(self._numbers)

    def prolong(self, number: int, until: float) -> None:
        """Do nothing."""

    def drop(self, numbers: Iterable[int]) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _sum(counts: Iterable[WorkerCounts]) -> WorkerCounts:
    return WorkerCounts(*map(sum, zip(*map(astuple, counts), strict=True)))
