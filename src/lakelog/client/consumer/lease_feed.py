"""The messages of one topic for a pull consumer of a lease group: taken ahead, handed out, and answered.

It takes leases with the same parts as a worker. The program decides when it takes a message and when it answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from lakelog.client._async.transport import AsyncTransport
from lakelog.client.consumer.lease_buffer import BufferedLease, LeaseBuffer
from lakelog.client.consumer.pulled_message import LeasePortion, Part, PulledMessage
from lakelog.client.reading.decoding import leased_messages
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.values import Consumed
from lakelog.client.worker.deadlines import Deadlines, DeadlineTimer
from lakelog.client.worker.lease_keeper import LeaseKeeper
from lakelog.client.worker.lease_taker import LeaseTaker
from lakelog.client.worker.leased_message import WorkerLease
from lakelog.client.worker.options import GroupSource
from lakelog.client.worker.polling import Poller
from lakelog.client.worker.prefetch import PATIENCE_SECONDS, Prefetch
from lakelog.errors import LeaseLost, OutOfOrder
from lakelog.model.group import Order
from lakelog.model.lease import Answered, LeaseAnswer, Verb
from lakelog.model.limits import MAX_BATCH_MESSAGES

_LONG_LEASE_MS = 20_000


class Demand:
    """How many messages the callers of a consumer wait for."""

    def __init__(self) -> None:
        self.count = 0
        self.is_single = True
        """True if the program takes messages one by one. Only then are messages taken ahead automatically."""


class LeaseFeed:
    """The leases of one topic.

    Args:
        source: The topic, the group and the options.
        transport: The transport of the event loop.
        keeper: Extends the leases.
        policy: The time limit of a call.
        demand: How many messages the program waits for.
        arrived: Called when messages may be taken.
    """

    def __init__(
        self,
        source: GroupSource,
        transport: AsyncTransport,
        keeper: LeaseKeeper,
        policy: CallRetryPolicy,
        demand: Demand,
        arrived: Callable[[], None],
    ) -> None:
        self.source = source
        self.in_flight = 0
        self._keeper = keeper
        self._demand = demand
        self._arrived = arrived
        self._stopping = False
        self._returns_next = False
        """True if the leases of the running call are given back."""
        self._taker = LeaseTaker(source, transport, keeper, policy, isolates=False, changed=self.look)
        self._prefetch = Prefetch(source.options)
        self._deadlines = Deadlines(source.options.timeout_seconds, keeper, lambda leased, running: None)
        self._poller = Poller(self, self._taker.sender, MAX_BATCH_MESSAGES)
        self._buffer = LeaseBuffer(self._decode)
        self._patience = DeadlineTimer(self._give_back_stalled)
        self._late = DeadlineTimer(self._give_up_late)
        self._tasks: list[asyncio.Task[None]] = []

    # Calls of the poller ----------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        return max(1, self._demand.count + self._ahead)

    def room_with(self, finished: int) -> int:
        ready = self._buffer.ready
        if self._stopping or (not self._demand.count and 2 * ready > self._ahead):
            return 0
        return max(0, self._demand.count + self._ahead - ready)

    @property
    def _ahead(self) -> int:
        is_wanted = self._demand.is_single or not self._prefetch.is_automatic
        return self._prefetch.size if is_wanted else 0

    def look(self) -> None:
        """Decide whether to request messages: the demand has changed, or messages were answered."""
        self._poller.look()

    # Calls of the consumer --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group, and start to request messages. Raise an error if the server refuses."""
        taker, name = self._taker, self.source.name
        # The keeper has a third of the lease to become ready. It takes half a second, but more on a busy machine.
        await taker.start(waits_for_keeper=self.source.options.lease_ms < _LONG_LEASE_MS)
        self._tasks = [
            asyncio.create_task(taker.take_all(self._poller, self._take), name=f"lakelog-pull-{name}"),
            asyncio.create_task(taker.keep_alive(), name=f"lakelog-heartbeat-{name}"),
            asyncio.create_task(taker.update_keeper(self._deadlines), name=f"lakelog-leases-{name}"),
        ]

    async def stop(self, seconds: float) -> None:
        """Give back all messages without an answer, and leave the group."""
        deadline = time.monotonic() + seconds
        self._stopping = True
        self._patience.stop()
        self._late.stop()
        if self._tasks:
            await _cancelled(self._tasks[:1])
            self._taker.sender.give_up_after(seconds)
            await self._taker.return_unseen()
            for lease in list(self._taker.leases):
                self._release(lease, sorted(lease.open - lease.answering))
            await self._taker.sender.flush()
            await _cancelled(self._tasks[1:])
        await self._taker.leave(deadline)

    @property
    def ready(self) -> int:
        """The number of messages that can be taken now."""
        return self._buffer.ready

    @property
    def order(self) -> Order:
        """The order of the group's messages."""
        return self._taker.order

    @property
    def has_more(self) -> bool:
        """True if the server had as many messages as were requested, so that more may be on their way."""
        return self._poller.has_more

    def take(self, count: int) -> list[Part]:
        """Return at most that many messages."""
        taken = self._buffer.take(count)
        if taken:
            self._deadlines.begin(taken)
            self._late.set(time.monotonic() + self.source.options.timeout_seconds)
        return taken

    def take_leases(self, count: int) -> list[BufferedLease]:
        """Return whole leases, for a program that reads columns."""
        # The rest of a lease that was begun has no columns. It comes back as a lease of its own.
        for lease, offsets in self._buffer.pop_decoded().items():
            self._release(lease, offsets)
        taken = self._buffer.take_leases(count)
        until = time.monotonic() + self.source.options.timeout_seconds
        for each in taken:
            each.lease.deadlines[each.offsets[0]] = until
        return taken

    def worked(self, seconds: float) -> None:
        """Record how long the program took for a message, so that messages are taken ahead accordingly."""
        self._prefetch.handled(seconds)

    def ack(self, lease: WorkerLease, messages: Sequence[PulledMessage]) -> asyncio.Future[Answered]:
        """Ack several messages of one lease with one answer."""
        self._separate(messages)
        result = self._submit(lease, self._answer(Verb.ACK, lease, [leased.message.offset for leased in messages]))
        for leased in messages:
            leased.acked_by(result)
        result.add_done_callback(partial(self._answered, lease, messages, Verb.ACK))
        return result

    def ack_portion(self, portion: LeasePortion) -> asyncio.Future[Answered]:
        """Ack all messages of a portion with one answer."""
        result = self._submit(portion.lease, self._answer(Verb.ACK, portion.lease, portion.offsets))
        portion.acked_by(result)
        result.add_done_callback(partial(self._portion_answered, portion))
        return result

    def nack(
        self, lease: WorkerLease, messages: Sequence[PulledMessage], reason: str, delay_ms: int | None
    ) -> asyncio.Future[Answered]:
        """Nack several messages of one lease with one answer: the server refuses a later one of a key before it."""
        self._separate(messages)
        answer = self._answer(Verb.NACK, lease, [leased.message.offset for leased in messages])
        result = self._submit(lease, replace(answer, reason=reason, delay_ms=delay_ms))
        for leased in messages:
            leased.nacked_by(result, reason)
        result.add_done_callback(partial(self._answered, lease, messages, Verb.NACK))
        return result

    def answer_lease(
        self, held: BufferedLease, verb: Verb, reason: str = "", delay_ms: int | None = None
    ) -> asyncio.Future[Answered]:
        """Answer all messages of a lease that the program reads as columns."""
        answer = replace(self._answer(verb, held.lease, held.offsets), reason=reason, delay_ms=delay_ms)
        result = self._submit(held.lease, answer)
        result.add_done_callback(partial(self._lease_answered, held))
        return result

    def held(self) -> list[Part]:
        """Return what the program holds."""
        return self._buffer.held.parts()

    def held_message(self, message: ReceivedMessage[Any]) -> list[PulledMessage]:
        """Return the object for the answer to a message that the program holds; none if it does not hold it."""
        return [each for each in self._buffer.held.messages() if each.message is message]

    def separate(self, portion: LeasePortion) -> None:
        """Let each message of a portion have an answer of its own."""
        self._buffer.held.separate(portion)

    def drop_all(self, partition: int | None) -> None:
        """Drop the messages of a partition, or of all, because the group was moved: their leases have ended."""
        for lease in list(self._taker.leases):
            if partition is None or lease.partition == partition:
                self._lose(lease)
        # A call that runs now may return leases from before the move.
        self._returns_next = self._taker.is_asking

    # Messages that arrive ---------------------------------------------------------------------------------------------

    def _take(self, found: Consumed) -> int:
        if self._returns_next:
            self._returns_next = False
            self._taker.give_back(found)
            asyncio.get_running_loop().call_soon(self._arrived)
            return 0
        payloads = iter(found.payloads)
        self._buffer.held.order = self._taker.order
        count = 0
        for head in found.leases:
            lease = self._taker.hold(head, self._deadlines)
            offsets = tuple(head.offsets())
            lease.open.update(offsets)
            self._taker.leases.add(lease)
            count += len(offsets)
            mine = [next(payloads) for _ in head.pieces]
            place = (self.source.topic, lease, mine, found.head.incarnation)
            self._buffer.add(BufferedLease(*place, offsets, time.monotonic()))
        self.in_flight += count
        self._keeper.flush()
        self._watch_stalled()
        # Later: the poller records first whether there are more.
        asyncio.get_running_loop().call_soon(self._arrived)
        return count

    def _decode(self, found: BufferedLease) -> LeasePortion:
        place = (self.source.topic, self.source.codec, found.incarnation)
        return LeasePortion(found.lease, leased_messages(*place, found.lease.head, found.payloads), self._answer_one)

    def _watch_stalled(self) -> None:
        since = self._buffer.oldest()
        if since is not None and not self._stopping:
            self._patience.set(max(since, time.monotonic() - PATIENCE_SECONDS / 2) + PATIENCE_SECONDS)

    def _give_back_stalled(self) -> None:
        """Give back messages that the program has not taken for a while, so that other members can take them."""
        is_wanted = self._demand.count or (not self._prefetch.is_automatic and self._buffer.ready <= self._ahead)
        if not is_wanted and not self._stopping:
            for lease, offsets in self._buffer.pop_older(time.monotonic() - PATIENCE_SECONDS).items():
                self._prefetch.stalled()
                self._release(lease, offsets)
        self._watch_stalled()

    def _give_up_late(self) -> None:
        """Nack messages that the program has held for too long without an answer."""
        now, soonest = time.monotonic(), float("inf")
        late: list[PulledMessage] = []
        for part in self._buffer.held.parts():
            deadline = part.lease.deadlines.get(part.message.offset, float("inf"))
            if deadline > now:
                soonest = min(soonest, deadline)
            else:
                late += [part] if isinstance(part, PulledMessage) else part.all()
        for leased in late:
            if leased.verb is None:
                reason = f"timeout: the program did not answer within {self.source.options.timeout_seconds:g} s"
                leased.give_up(leased.answer(Verb.NACK, reason))
        if soonest < float("inf"):
            self._late.set(soonest)

    # Answers ----------------------------------------------------------------------------------------------------------

    def _separate(self, messages: Iterable[PulledMessage]) -> None:
        for portion in {leased.portion for leased in messages}:
            self._buffer.held.separate(portion)

    def _answer_one(self, leased: PulledMessage, answer: LeaseAnswer) -> asyncio.Future[Answered]:
        self._separate([leased])
        result = self._submit(leased.lease, answer)
        result.add_done_callback(partial(self._answered, leased.lease, [leased], answer.verb))
        return result

    def _submit(self, lease: WorkerLease, answer: LeaseAnswer) -> asyncio.Future[Answered]:
        count = len(answer.offsets)
        lease.answering.update(answer.offsets)  # type: ignore[arg-type]
        # An answer goes with the next call for messages if one is due. Otherwise it is sent immediately.
        return self._taker.sender.submit(answer, finished=count if self.room_with(count) else 0)

    def _answered(
        self, lease: WorkerLease, messages: Sequence[PulledMessage], verb: Verb, result: asyncio.Future[Answered]
    ) -> None:
        error = result.exception()
        offsets = [leased.message.offset for leased in messages]
        if isinstance(error, OutOfOrder):
            # Nothing was changed: the program still holds the messages.
            lease.answering.difference_update(offsets)
            for leased in messages:
                leased.forget_answer()
            return
        if isinstance(error, LeaseLost) and "offset" not in error.subject:
            self._lose(lease)
        is_back = verb in (Verb.NACK, Verb.RELEASE) and error is None
        dead = result.result().dead if is_back else ()
        for leased in messages:
            leased.is_done = True
            lease.deadlines.pop(leased.message.offset, None)
        if is_back:
            back = [leased for leased in messages if leased.message.offset not in dead]
            offsets += [each.message.offset for leased in back for each in self._buffer.remove_later(leased)]
        self._buffer.answered_all(messages)
        self._finish(lease, offsets)

    def _portion_answered(self, portion: LeasePortion, result: asyncio.Future[Answered]) -> None:
        error = result.exception()
        if not portion.is_whole:
            self._answered(portion.lease, portion.all(), Verb.ACK, result)
        elif isinstance(error, OutOfOrder):
            portion.lease.answering.difference_update(portion.offsets)
            portion.forget_answer()
        else:
            if isinstance(error, LeaseLost) and "offset" not in error.subject:
                self._lose(portion.lease)
            portion.finish()
            portion.lease.deadlines.pop(portion.message.offset, None)
            self._buffer.held.discard_portion(portion)
            self._finish(portion.lease, portion.offsets)

    def _lease_answered(self, held: BufferedLease, result: asyncio.Future[Answered]) -> None:
        result.exception()
        held.lease.deadlines.clear()
        self._finish(held.lease, held.offsets)

    def _finish(self, lease: WorkerLease, offsets: Sequence[int]) -> None:
        before = len(lease.open)
        self._taker.drop_answered(lease, offsets)
        self.in_flight -= before - len(lease.open)
        lease.answering.difference_update(offsets)
        if lease.open:
            self._deadlines.update_keeper(lease)
        self.look()
        self._arrived()

    def _release(self, lease: WorkerLease, offsets: Sequence[int]) -> None:
        """Give back messages that the program has not answered. They are not counted as failures."""
        if offsets:
            self._taker.sender.submit(self._answer(Verb.RELEASE, lease, sorted(offsets)))
            self._finish(lease, offsets)

    def _lose(self, lease: WorkerLease) -> None:
        """Drop the messages of a lease that another member may have."""
        lease.lost = True
        self._buffer.remove_lease(lease)
        self._finish(lease, list(lease.open))

    def _answer(self, verb: Verb, lease: WorkerLease, offsets: Sequence[int]) -> LeaseAnswer:
        return LeaseAnswer(verb=verb, partition=lease.partition, token=lease.token, offsets=tuple(offsets))


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
