"""Runs the messages of leases in batches: one call of the handler for many messages.

A batch starts when it is full, or when its first message has waited for `batch_wait`. It holds the messages of a key in
order, and a key is in one batch at a time. A suspect is a batch of its own, alone in the process.

`batch_work` answers the messages of a batch. `lease_runner` is the same for handlers of single messages.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lakelog.client import processes
from lakelog.client.worker.answer_rounds import ACK, Decision
from lakelog.client.worker.batch_work import BatchedMessage, BatchWork
from lakelog.client.worker.completion import NO_ANSWER
from lakelog.client.worker.deadlines import DeadlineTimer
from lakelog.client.worker.delivery_tracing import batch_span
from lakelog.client.worker.handlers import BatchHandler, reason_of
from lakelog.client.worker.isolation import isolation_lock
from lakelog.client.worker.lease_keeper import WorkerResources
from lakelog.client.worker.lease_taker import LeaseTaker
from lakelog.client.worker.leased_message import LeasedMessage, WorkerLease
from lakelog.client.worker.options import Subscription
from lakelog.client.worker.runner import Runner
from lakelog.model.lease import LeaseAnswer, Verb

log = processes.log

_MOST_OVERRUN = 16
"""The number of handlers that may exceed their deadline before no more messages are taken."""
_RELEASE = Decision(Verb.RELEASE)


class BatchRunner(Runner):
    """Runs the leases of one subscription with a batch handler."""

    def __init__(
        self, subscription: Subscription, taker: LeaseTaker, resources: WorkerResources, changed: Callable[[], None]
    ) -> None:
        assert isinstance(subscription.handler, BatchHandler) and subscription.options.batch is not None
        super().__init__(subscription, taker, resources, changed)
        self._handler, self._group = subscription.handler, subscription.group
        self._size = subscription.options.batch
        self._wait_seconds = subscription.options.batch_wait_seconds
        self._suspects: deque[deque[BatchedMessage]] = deque()
        self._waiting: deque[tuple[float, deque[BatchedMessage]]] = deque()
        """Chains of messages that wait for a batch, each with the time when its wait began."""
        self._waiting_count = 0
        self._timer = DeadlineTimer(self._turn)

    def room_with(self, finished: int) -> int:
        """Return how many more messages may be taken after `finished` messages are done: those of free slots.

        Messages that fill no slot now could be handled by other workers.
        """
        if self._overrun >= _MOST_OVERRUN:
            return 0
        room = self._free_slots * self._size + self.prefetch.size - self._waiting_count
        if self._options.max_in_flight is not None:
            room = min(room, self._options.max_in_flight - self.in_flight + finished)
        return max(0, room)

    def begin(self, lease: WorkerLease, chains: Iterable[Sequence[Any]]) -> None:
        """Let the chains wait for a batch, the messages of each chain in order."""
        self._taker.leases.add(lease)
        now = time.monotonic()
        for chain in chains:
            lease.open.update([leased.message.offset for leased in chain])
            self.in_flight += len(chain)
            self._waiting_count += len(chain)
            if lease.suspect:
                self._suspects.append(deque(chain))
            else:
                self._waiting.append((now, deque(chain)))
        self._turn_soon()

    def _cancel_all(self) -> None:
        self._timer.stop()
        for task in list(self._tasks):
            task.cancel()
        for running in list(self.deadlines.running):
            # Also those that were too late: they hold the isolation lock.
            running.cancel()

    # Batches that start -----------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Start the batches that are full or have waited long enough."""
        self._turn_is_due = False
        if self.stopping:
            waiting = [*self._suspects, *(chain for _, chain in self._waiting)]
            self._suspects.clear()
            self._waiting.clear()
            self._waiting_count = 0
            for chain in waiting:
                self._give_back(chain)
            return
        while self._free_slots and (work := self._next_work()) is not None:
            self._free_slots -= 1
            task = asyncio.create_task(self._run(work), name="lakelog-batch")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._waiting and self._free_slots:
            self._timer.set(self._waiting[0][0] + self._wait_seconds)

    def _next_work(self) -> BatchWork | None:
        if self._suspects:
            return self._work([self._suspects.popleft()], 1)
        if not self._waiting:
            return None
        if self._waiting_count < self._size and time.monotonic() < self._waiting[0][0] + self._wait_seconds:
            return None
        chains: list[deque[BatchedMessage]] = []
        count = 0
        while self._waiting and count < self._size:
            _, chain = self._waiting.popleft()
            if chain[0].lease.lost:
                self._waiting_count -= len(chain)
                self._give_back(chain)
                continue
            chains.append(chain)
            count += len(chain)
        return self._work(chains, self._size) if chains else None

    def _work(self, chains: Sequence[deque[BatchedMessage]], most: int) -> BatchWork:
        """Return a batch with the first `most` messages of the chains. The others wait until it is answered."""
        taken: list[BatchedMessage] = []
        rests: list[tuple[BatchedMessage, deque[BatchedMessage]]] = []
        for chain in chains:
            self._waiting_count -= len(chain)
            while chain and len(taken) < most:
                taken.append(chain.popleft())
            if chain:
                rests.append((taken[-1], chain))
        work = BatchWork(taken, self._completer, self._taker.order)
        work.rests = rests
        return work

    # The run of a batch -----------------------------------------------------------------------------------------------

    async def _run(self, work: BatchWork) -> None:
        try:
            await self._handle(work)
        except BaseException:
            self._give_back([*work.messages, *(leased for _, rest in work.rests for leased in rest)])
            raise
        else:
            self._free(work.messages)
            for last, rest in work.rests:
                if last.goes_on:
                    self._waiting.appendleft((0.0, rest))
                    self._waiting_count += len(rest)
                else:
                    # The server has taken back the later messages of the key.
                    self._free(rest)
        finally:
            self._leave_slot(work)

    async def _handle(self, work: BatchWork) -> None:
        wanted = self._options.filter if callable(self._options.filter) else None
        self.counts.skipped += work.leave_out(wanted)
        if self._once is not None:
            self._completer.repeated(await work.leave_repeats(self._once), has_run=False)
        if not work.given:
            await work.finish(_RELEASE)
            return
        if not await self._enter(work):
            return
        self.deadlines.begin(work.given)
        try:
            with batch_span(self._group, [each.message for each in work.given]) as span:
                running = self._handler.begin_batch(work, self._threads)
                span.ends_with(running)
        except Exception as error:
            isolation_lock.left(was_alone=work.is_suspect)
            log.error("%s: the handler could not be started", self.failure_log.where(work.given[0]), exc_info=error)
            self._end_deadlines(work)
            await work.finish(_RELEASE)
            return
        self.deadlines.running[running] = work.given[0]
        running.add_done_callback(self._handler_ended)
        try:
            await asyncio.wait((running, work.late), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._end_deadlines(work)
            running.cancel()
            raise
        self._end_deadlines(work)
        await self._finish(work, running)

    async def _enter(self, work: BatchWork) -> bool:
        """Wait until the batch may run. Return False if it was released or lost instead."""
        if not work.is_suspect:
            if not isolation_lock.enter_now():
                await self._until_allowed(isolation_lock.enter())
        elif not await self._until_allowed(isolation_lock.enter_alone(self._options.timeout_seconds)):
            await work.finish(Decision(Verb.RELEASE, delay_seconds=1.0))
            return False
        elif not await self._extend_alone(work.messages[0]):
            return False
        if self.stopping:
            isolation_lock.left(was_alone=work.is_suspect)
            await work.finish(_RELEASE)
        return not self.stopping

    # The end of a batch -----------------------------------------------------------------------------------------------

    async def _finish(self, work: BatchWork, running: asyncio.Future[Any]) -> None:
        """Answer the messages of a batch whose handler has ended or is too late."""
        decision = self._decision(work, running)
        if decision.verb is Verb.ACK and not self._calls_on_ack and not work.is_suspect:
            # The next batch is requested together with the acks of this one.
            self._leave_slot(work)
        is_used = await work.finish(decision)
        if not is_used and decision.error is not None:
            what = "the handler failed after it had answered its batch"
            self.failure_log.write(logging.WARNING, work.given[0], what, decision.reason, decision.error)

    def _decision(self, work: BatchWork, running: asyncio.Future[Any]) -> Decision:
        """Return the answer to the messages that the handler has not answered."""
        if not running.done():
            return self._timed_out(work, running)
        error = asyncio.CancelledError() if running.cancelled() else running.exception()
        if error is not None:
            return Decision(Verb.NACK, reason_of(error), error)
        if self._options.ack == "manual":
            return Decision(Verb.NACK, NO_ANSWER)
        return ACK

    def _timed_out(self, work: BatchWork, running: asyncio.Future[Any]) -> Decision:
        self.counts.timed_out += len(work.given)
        error = self._overran(running)
        return Decision(Verb.NACK, f"timeout: {error}", error)

    def _late(self, leased: LeasedMessage, running: asyncio.Future[Any]) -> None:
        assert isinstance(leased, BatchedMessage) and leased.work is not None
        if not leased.work.late.done():
            leased.work.late.set_result(None)

    def _handler_ended(self, running: asyncio.Future[Any]) -> None:
        leased = self.deadlines.ended(running)
        isolation_lock.left(was_alone=leased.lease.suspect)
        if not running.cancelled():
            # No other code reads the error of a handler that was too late.
            running.exception()

    def _end_deadlines(self, work: BatchWork) -> None:
        for leased in work.given:
            leased.lease.deadlines.pop(leased.message.offset, None)
        for lease in work.leases:
            self.deadlines.update_keeper(lease)

    def _leave_slot(self, work: BatchWork) -> None:
        """Free the slot for the next batch. Called when a handler ends, and again when its batch is answered."""
        if work.has_slot:
            work.has_slot = False
            self._free_slots += 1
            self._changed()
        self._turn_soon()

    def _give_back(self, messages: Iterable[BatchedMessage]) -> None:
        """Release messages whose handler did not finish. They are not counted as failures."""
        by_lease: dict[WorkerLease, list[BatchedMessage]] = {}
        for leased in messages:
            by_lease.setdefault(leased.lease, []).append(leased)
        for lease, some in by_lease.items():
            open_ = [leased for leased in some if leased.verb is None and not leased.is_done and not lease.lost]
            if open_:
                offsets = tuple([leased.message.offset for leased in open_])
                self._taker.sender.submit(
                    LeaseAnswer(verb=Verb.RELEASE, partition=lease.partition, token=lease.token, offsets=offsets)
                )
                self.counts.released += len(open_)
            for leased in open_:
                leased.is_done = True
            self._free(some)

    def _free(self, done: Sequence[BatchedMessage] | deque[BatchedMessage]) -> None:
        by_lease: dict[WorkerLease, list[int]] = {}
        for leased in done:
            by_lease.setdefault(leased.lease, []).append(leased.message.offset)
        if self._once is not None:
            self._once.leave(done)
        self.in_flight -= len(done)
        for lease, offsets in by_lease.items():
            self._taker.drop_answered(lease, offsets)
        self._freed.set()
        self._changed()
