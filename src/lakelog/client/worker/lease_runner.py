"""Runs the messages of leases: messages of a key in order, other messages concurrently, a suspect alone in the process.

A message needs one task, that of its handler, and no timer. Handlers that end in one iteration of the event loop are
answered together. Only a suspect, a failure, a hook or an explicit answer of the handler needs another task.

`completion` decides the answer to a message. `worker` takes the leases and decides when to stop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from lakelog.client import processes
from lakelog.client.worker.deadlines import DeadlineTimer
from lakelog.client.worker.delivery_tracing import DeliveryTracing
from lakelog.client.worker.handlers import reason_of
from lakelog.client.worker.isolation import isolation_lock
from lakelog.client.worker.lease_keeper import WorkerResources
from lakelog.client.worker.lease_taker import LeaseTaker
from lakelog.client.worker.leased_message import LeasedMessage, WorkerLease
from lakelog.client.worker.once import once_values
from lakelog.client.worker.options import Subscription
from lakelog.client.worker.runner import Runner
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.lease import Answered, LeaseAnswer, Verb

log = processes.log
_Work = Callable[..., Awaitable[bool | None]]
_LeasedByLease = dict[WorkerLease, list[LeasedMessage]]

_MOST_OVERRUN = 64
"""The number of handlers that may exceed their deadline before no more messages are taken."""


class LeaseRunner(Runner):
    """Runs the leases of one subscription."""

    def __init__(
        self, subscription: Subscription, taker: LeaseTaker, resources: WorkerResources, changed: Callable[[], None]
    ) -> None:
        super().__init__(subscription, taker, resources, changed)
        self._running = self.deadlines.running
        self._tracing = DeliveryTracing(subscription.group, subscription.handler)
        self._plain = subscription.options.ack != "manual" and not subscription.on_ack
        """True if a handler that returns acks its message, and no hook follows."""
        self._sender = taker.sender
        self._waiting: deque[tuple[float, deque[LeasedMessage]]] = deque()
        """Chains of messages that wait for a slot, each with the time when its wait began."""
        self._ended: list[tuple[LeasedMessage, asyncio.Future[Any]]] = []
        """Handlers that have ended in this iteration of the event loop."""
        self._patience = DeadlineTimer(self._give_back_stalled)

    def room_with(self, finished: int) -> int:
        """Return how many more messages may be taken after `finished` messages are done."""
        if self._overrun >= _MOST_OVERRUN:
            return 0
        return max(0, self.prefetch.capacity - self.in_flight + finished)

    def begin(self, lease: WorkerLease, chains: Iterable[Sequence[LeasedMessage]]) -> None:
        """Run the chains concurrently, and the messages of each chain in order."""
        self._taker.leases.add(lease)
        now = time.monotonic()
        for chain in chains:
            lease.open.update([leased.message.offset for leased in chain])
            self.in_flight += len(chain)
            self._waiting.append((now, deque(chain)))
        self._turn_soon()

    def _cancel_all(self) -> None:
        self._patience.stop()
        for running, leased in list(self._running.items()):
            self._cancel(running, leased)
        for task in list(self._tasks):
            task.cancel()

    # A turn: what has ended is answered, and what waits takes the free slots ------------------------------------------

    def _turn(self) -> None:
        # Slots that become free in this turn are used in this turn.
        self._turn_is_due = True
        if self._ended:
            self._settle_ended()
        if self.stopping:
            waiting, self._waiting = self._waiting, deque()
            for _, chain in waiting:
                self._give_back(chain)
        elif self._waiting and self._free_slots:
            self._fill_slots()
        if self._waiting and self.prefetch.patience_seconds is not None:
            self._patience.set(self._waiting[0][0] + self.prefetch.patience_seconds)
        self._turn_is_due = False
        if self._waiting and self._free_slots:
            self._turn_soon()

    def _settle_ended(self) -> None:
        ended, self._ended = self._ended, []
        acked: _LeasedByLease = {}
        for leased, running in ended:
            lease = leased.lease
            del lease.deadlines[leased.message.offset]
            succeeded = not running.cancelled() and running.exception() is None
            if succeeded and leased.verb is None and self._plain and not lease.suspect:
                self._leave_slot(leased)
                acked.setdefault(lease, []).append(leased)
            else:
                self._spawn(leased, self._finish, running)
        for lease, messages in acked.items():
            self._ack(lease, messages)
        for lease in {leased.lease for leased, _ in ended}:
            self.deadlines.update_keeper(lease)

    def _fill_slots(self) -> None:
        now = time.monotonic()
        starting: list[tuple[LeasedMessage, object]] = []
        skipped: _LeasedByLease = {}
        while self._waiting and self._free_slots:
            _, chain = self._waiting.popleft()
            if chain[0].lease.lost:
                self._give_back(chain)
                continue
            leased = chain.popleft()
            leased.chain, leased.began = chain, now
            self._free_slots -= 1
            self._prepare(leased, starting, skipped)
        for lease, messages in skipped.items():
            self._ack(lease, messages)
        if starting:
            self._start(starting)

    def _prepare(
        self, leased: LeasedMessage, starting: list[tuple[LeasedMessage, object]], skipped: _LeasedByLease
    ) -> None:
        """Decode the value of a message that has a slot, and decide how to run it."""
        try:
            value = leased.message.value
        except Exception as error:
            reason = error.detail if isinstance(error, InvalidRequest) else reason_of(error)
            self._spawn(leased, self._completer.settle, Verb.FAIL, reason, error)
            return
        try:
            wanted = not callable(self._options.filter) or self._options.filter(value)
            has_value = wanted and self._once is not None and self._once.read(leased)
        except Exception as error:
            self._spawn(leased, self._completer.settle, Verb.NACK, reason_of(error), error)
            return
        if not wanted:
            self.counts.skipped += 1
            if self._plain and not leased.lease.suspect:
                self._leave_slot(leased)
                skipped.setdefault(leased.lease, []).append(leased)
            else:
                self._spawn(leased, self._completer.settle, Verb.ACK, "", None)
        elif has_value:
            self._spawn(leased, self._run_once, value)
        elif leased.lease.suspect:
            self._spawn(leased, self._run_alone, value)
        elif isolation_lock.enter_now():
            starting.append((leased, value))
        else:
            self._spawn(leased, self._run_later, value)

    def _start(self, starting: Sequence[tuple[LeasedMessage, object]]) -> None:
        """Start the handlers of messages that hold the isolation lock."""
        self.deadlines.begin([leased for leased, _ in starting])
        begin, threads = self._tracing.starter(), self._threads
        for leased, value in starting:
            try:
                running = begin(value, leased, threads)
            except Exception as error:
                self._could_not_start(leased, error)
                continue
            self._running[running] = leased
            running.add_done_callback(self._handler_ended)

    def _could_not_start(self, leased: LeasedMessage, error: Exception) -> None:
        isolation_lock.left(was_alone=leased.lease.suspect)
        log.error("%s: the handler could not be started", self.failure_log.where(leased), exc_info=error)
        del leased.lease.deadlines[leased.message.offset]
        self._leave_slot(leased)
        self._give_back([leased, *leased.chain])

    # The end of a handler, and of its message -------------------------------------------------------------------------

    def _handler_ended(self, running: asyncio.Future[Any]) -> None:
        leased = self.deadlines.ended(running)
        isolation_lock.left(was_alone=leased.lease.suspect)
        if leased.message.offset in leased.lease.deadlines:
            self._ended.append((leased, running))
            if self._running:
                self._turn_soon()
            else:
                self._turn()
        elif not running.cancelled():
            # The handler was too late, or the worker stops: its message has an answer already.
            running.exception()

    def _ack(self, lease: WorkerLease, messages: list[LeasedMessage]) -> None:
        offsets = tuple([leased.message.offset for leased in messages])
        once = once_values(messages) if self._once is not None else {}
        answer = LeaseAnswer(verb=Verb.ACK, partition=lease.partition, token=lease.token, offsets=offsets, once=once)
        result = self._sender.submit(answer, finished=len(messages))
        for leased in messages:
            leased.acked_by(result)
        result.add_done_callback(partial(self._acked, lease, messages))

    def _acked(self, lease: WorkerLease, messages: list[LeasedMessage], result: asyncio.Future[Answered]) -> None:
        refusal = result.exception()
        if refusal is None:
            repeats = result.result().filtered
            count = sum(leased.message.offset in repeats for leased in messages) if repeats else 0
            self._completer.repeated(count, has_run=True)
            self.counts.acked += len(messages) - count
        for leased in messages:
            leased.is_done = True
            if isinstance(refusal, LakelogError):
                self._completer.refused(leased, refusal)
            self._continue(leased, refusal is None)
        self._free(lease, messages)

    async def _finish(self, leased: LeasedMessage, running: asyncio.Future[Any]) -> bool:
        if leased.verb is Verb.ACK and not self._calls_on_ack and not leased.lease.suspect:
            # No hook follows. A suspect keeps its slot: the next handler may kill the process, and the
            # suspect would be blamed until its ack is answered.
            self._leave_slot(leased)
        return await self._completer.ended(leased, running)

    def _continue(self, leased: LeasedMessage, goes_on: bool) -> None:
        """Let the chain wait for a slot again after an answer, or drop it."""
        chain = leased.chain
        if not chain:
            return
        if not goes_on and leased.verb is not Verb.RELEASE:
            # The server has taken back the later messages of the key.
            self._free(leased.lease, chain)
            chain.clear()
        else:
            self._waiting.append((time.monotonic(), chain))
            self._turn_soon()

    def _leave_slot(self, leased: LeasedMessage) -> None:
        """Free the slot for the next handler. Called when a handler ends, and again when its message is answered."""
        if leased.began:
            self.prefetch.handled(time.monotonic() - leased.began)
            leased.began = 0.0
            self._free_slots += 1
            self._turn_soon()

    def _give_back(self, left: Sequence[LeasedMessage] | deque[LeasedMessage]) -> None:
        """Release messages whose handler did not finish. They are not counted as failures."""
        lease = left[0].lease
        for leased in left:
            leased.end_span(Verb.RELEASE)
            if leased.verb is None and not lease.lost:
                leased.is_done = True
                self.counts.released += 1
                self._sender.submit(leased.answer(Verb.RELEASE))
        self._free(lease, left)

    def _free(self, lease: WorkerLease, done: Sequence[LeasedMessage] | deque[LeasedMessage]) -> None:
        if self._once is not None:
            self._once.leave(done)
        self.in_flight -= len(done)
        self._taker.drop_answered(lease, [leased.message.offset for leased in done])
        self._freed.set()
        self._changed()

    # Messages that need a task besides their handler's ----------------------------------------------------------------

    def _spawn(self, leased: LeasedMessage, work: _Work, *args: object) -> None:
        task = asyncio.create_task(self._see_through(leased, work, *args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _see_through(self, leased: LeasedMessage, work: _Work, *args: object) -> None:
        """Await the work, which returns whether the chain continues, or None if the handler runs now."""
        try:
            goes_on = await work(leased, *args)
        except BaseException:
            self._leave_slot(leased)
            self._give_back([leased, *leased.chain])
            raise
        if goes_on is not None:
            self._leave_slot(leased)
            self._free(leased.lease, [leased])
            self._continue(leased, goes_on)

    async def _run_once(self, leased: LeasedMessage, value: object) -> bool | None:
        """Run a message unless it repeats a value."""
        assert self._once is not None
        try:
            if not await self._until_allowed(self._once.enter(leased)):
                self._completer.repeated(1, has_run=False)
                return True
        except LakelogError as refusal:
            self._completer.refused(leased, refusal)
            return False
        return await (self._run_alone if leased.lease.suspect else self._run_later)(leased, value)

    async def _run_later(self, leased: LeasedMessage, value: object) -> bool | None:
        """Run a message after the suspect that runs or waits to run."""
        await self._until_allowed(isolation_lock.enter())
        return await self._run_or_release(leased, value)

    async def _run_alone(self, leased: LeasedMessage, value: object) -> bool | None:
        if not await self._until_allowed(isolation_lock.enter_alone(self._timeout)):
            return await self._completer.settle(leased, Verb.RELEASE, "", None, delay_seconds=1.0)
        if not await self._extend_alone(leased):
            return False
        return await self._run_or_release(leased, value)

    async def _run_or_release(self, leased: LeasedMessage, value: object) -> bool | None:
        if self.stopping:
            isolation_lock.left(was_alone=leased.lease.suspect)
            return await self._completer.settle(leased, Verb.RELEASE, "", None)
        self._start([(leased, value)])
        return None

    def _late(self, leased: LeasedMessage, running: asyncio.Future[Any]) -> None:
        self._spawn(leased, self._time_out, running)

    async def _time_out(self, leased: LeasedMessage, running: asyncio.Future[Any]) -> bool:
        if running.done():
            return await self._completer.ended(leased, running)
        self.counts.timed_out += 1
        if leased.verb is not None:
            running.cancel()
            return await self._completer.settle(leased, leased.verb, leased.reason, leased.error)
        error = self._overran(running)
        return await self._completer.settle(leased, Verb.NACK, f"timeout: {error}", error)

    def _give_back_stalled(self) -> None:
        """Give back messages that have waited too long for a slot, so that other workers can take them."""
        patience = self.prefetch.patience_seconds
        while patience is not None and self._waiting and time.monotonic() - self._waiting[0][0] >= patience:
            _, chain = self._waiting.popleft()
            self.prefetch.stalled()
            self._give_back(chain)
        self._turn_soon()

    def _cancel(self, running: asyncio.Future[Any], leased: LeasedMessage) -> None:
        """Cancel a handler that still runs when the worker must stop."""
        running.cancel()
        if leased.lease.deadlines.pop(leased.message.offset, None) is not None:
            self._leave_slot(leased)
            self._give_back([leased, *leased.chain])
