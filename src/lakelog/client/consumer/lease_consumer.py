"""The consumer of a lease group in its event loop: callers wait for messages of all topics, and answer them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from lakelog.batches import FETCH
from lakelog.client import processes
from lakelog.client._async.calls import AsyncCalls
from lakelog.client.consumer.core import Place
from lakelog.client.consumer.lease_buffer import BufferedLease
from lakelog.client.consumer.lease_feed import Demand, LeaseFeed
from lakelog.client.consumer.options import ConsumerOptions
from lakelog.client.consumer.pulled_message import LeasePortion, Part, PulledBatch, PulledMessage
from lakelog.client.consumer.waiting import Waiters
from lakelog.client.reading.decoding import leased_batches
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.worker.answer_rounds import ACK, Decision, in_rounds
from lakelog.client.worker.leased_message import WorkerLease, clipped, extend_all
from lakelog.client.worker.options import GroupSource
from lakelog.client.worker.pool import WorkerSettings
from lakelog.errors import Closed, LakelogError, LeaseLost
from lakelog.model.lease import Answered, Verb
from lakelog.model.seek import SeekRequest
from lakelog.wire.operations import groups as operations

log = processes.log
T = TypeVar("T", bound=Part | BufferedLease)
Held = Part | BufferedLease


class LeaseConsumer:
    """Pulls the messages of a lease group, in one event loop."""

    def __init__(self, options: ConsumerOptions, group: str, settings: WorkerSettings, policy: CallRetryPolicy) -> None:
        self._acks_on_next = options.commit_mode == "immediate"
        self._settings = settings
        self._transport = settings.transport()
        self._keeper = settings.keeper(self._transport)
        self._stopped = False
        self._demand = Demand()
        self._waiters = Waiters()
        self._calls = AsyncCalls(self._transport, policy)
        self._group = group
        self._taken: dict[object, tuple[float, Sequence[Held]]] = {}
        """The messages that each caller took last, and when."""
        self._feed_of: dict[str, LeaseFeed] = {}
        for topic in options.topics:
            source = GroupSource(topic=topic.name, group=group, codec=topic.codec, options=options.member_options())
            self._feed_of[topic.name] = LeaseFeed(
                source, self._transport, self._keeper, policy, self._demand, self._waiters.wake
            )
        self._order = list(self._feed_of.values())
        """The feeds, in the order in which the next caller looks at them."""

    async def start(self) -> None:
        """Join the group for each topic. Raise an error if the server refuses."""
        self._keeper.begin()
        try:
            for feed in self._order:
                await feed.start()
        except BaseException:
            await self.stop(5.0)
            raise

    async def stop(self, seconds: float) -> None:
        """Give back the messages without an answer, and leave the group."""
        try:
            await asyncio.gather(*(feed.stop(seconds) for feed in self._order))
        finally:
            self._keeper.close()
            self._stopped = True
            self._waiters.wake()
            if self._settings.owns_transport:
                await self._transport.close()

    # Taking -----------------------------------------------------------------------------------------------------------

    async def pull(self, count: int, least: int, seconds: float | None, caller: object) -> PulledBatch:
        """Return messages: `count`, or at least `least` if the server has no more now, or those of `seconds`."""
        self._demand.is_single = count == 1
        return PulledBatch(await self._pull(LeaseFeed.take, count, least, seconds, caller))

    async def pull_columns(self, count: int, seconds: float | None, caller: object) -> LeasedColumns | None:
        """Return whole leases of one topic with about `count` messages; None if there was none within `seconds`."""
        self._demand.is_single = False
        found = await self._pull(LeaseFeed.take_leases, count, 1, seconds, caller)
        return LeasedColumns(self, found) if found else None

    async def _pull(
        self,
        take: Callable[[LeaseFeed, int], list[T]],
        count: int,
        least: int,
        seconds: float | None,
        caller: object,
    ) -> list[T]:
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._wanting(count):
            self._ended(caller)
            while True:
                if self._stopped:
                    raise Closed("This consumer is closed.")
                is_late = deadline is not None and time.monotonic() >= deadline
                if is_late or self._has_enough(count, least):
                    found = self._take(take, count)
                    if found or is_late:
                        self._taken[caller] = (time.monotonic(), found)
                        return found
                await self._waiters.wait(deadline)

    def _has_enough(self, count: int, least: int) -> bool:
        ready = sum(feed.ready for feed in self._order)
        return ready >= count or (ready >= least and not any(feed.has_more for feed in self._order))

    def _take(self, take: Callable[[LeaseFeed, int], list[T]], count: int) -> list[T]:
        found: list[T] = []
        left = count
        for feed in list(self._order):
            if left <= 0:
                break
            some = take(feed, left)
            if some:
                # The next caller begins with another topic.
                self._order.remove(feed)
                self._order.append(feed)
                found += some
                left -= _count(some)
                if isinstance(some[0], BufferedLease):
                    # Columns are of one topic.
                    break
        return found

    @contextmanager
    def _wanting(self, count: int) -> Iterator[None]:
        self._demand.count += count
        for feed in self._order:
            feed.look()
        try:
            yield
        finally:
            self._demand.count -= count

    def _ended(self, caller: object) -> None:
        """Record that a caller is done with its last messages. With `immediate`, ack them."""
        # A task that has ended asks for nothing more: `create_task(consumer.next())` is such a task.
        ended = [each for each in self._taken if each == caller or (isinstance(each, asyncio.Task) and each.done())]
        for each in ended:
            since, held = self._taken.pop(each)
            seconds = (time.monotonic() - since) / max(1, _count(held))
            for feed in self._order:
                feed.worked(seconds)
            if self._acks_on_next:
                for result in self._ack_open(held):
                    result.add_done_callback(_log_refusal)

    # Positions --------------------------------------------------------------------------------------------------------

    async def commit(self, message: ReceivedMessage[Any] | None) -> None:
        """Ack a message; without one, all messages that the program holds."""
        held: list[Held] = []
        for feed in self._order:
            held += feed.held() if message is None else feed.held_message(message)
        await self.ack(held, {})

    async def seek(self, to: datetime, places: Collection[Place]) -> None:
        """Move the group to messages of that time or later."""
        every: list[tuple[str, int | None]] = [(name, None) for name in self._feed_of]
        for topic, partition in [*places] or every:
            await self._move(SeekRequest(group=self._group, topic=topic, partition=partition, timestamp=to))

    async def rewind(self, offset: int, places: Collection[Place]) -> None:
        """Move the group to an offset of these partitions."""
        for topic, partition in places:
            await self._move(SeekRequest(group=self._group, topic=topic, partition=partition, offset=offset))

    async def _move(self, request: SeekRequest) -> None:
        await self._calls.call(operations.SEEK, request)
        self._feed_of[request.topic].drop_all(request.partition)
        self._taken.clear()

    # Answers ----------------------------------------------------------------------------------------------------------

    async def ack(self, held: Sequence[Held], failed: Mapping[Any, str]) -> None:
        """Ack messages with one answer for each lease. Raise the first error after all answers have a result."""
        if failed:
            await self._ack_with_failed([each for each in held if isinstance(each, PulledMessage)], failed)
            return
        parts = held.parts if isinstance(held, PulledBatch) else held
        lost = sum(map(_lost, parts))
        await _all_accepted(self._ack_open(parts))
        if lost:
            raise LeaseLost(f"{lost} of the {len(held)} messages were not acked: their leases had ended.")

    async def nack(self, held: Sequence[PulledMessage], reason: str, delay_seconds: float | None) -> None:
        """Nack the messages that have no answer yet, with one answer for each lease."""
        delay_ms = None if delay_seconds is None else round(delay_seconds * 1000)
        by_lease: dict[WorkerLease, list[PulledMessage]] = {}
        for each in held:
            if each.verb is None and not each.is_done:
                by_lease.setdefault(each.lease, []).append(each)
        await _all_accepted(
            [
                self._feed_of[some[0].message.topic].nack(lease, some, clipped(reason), delay_ms)
                for lease, some in by_lease.items()
            ]
        )

    async def extend(self, held: Sequence[PulledMessage], seconds: float | None) -> None:
        """Give the program more time for the messages that have no answer yet."""
        open_ = [each for each in held if each.verb is None and not each.is_done]
        for each in open_:
            if each.portion is not None:
                self._feed_of[each.message.topic].separate(each.portion)
        await extend_all(open_, seconds)

    async def _ack_with_failed(self, held: Sequence[PulledMessage], failed: Mapping[Any, str]) -> None:
        """Fail some messages and ack the others, the messages of a key in order."""
        reasons = {each: Decision(Verb.FAIL, failed[each]) for each in held if each in failed}
        open_ = [each for each in held if each.verb is None and not each.is_done]
        by_topic: dict[str, list[PulledMessage]] = {}
        for each in open_:
            by_topic.setdefault(each.message.topic, []).append(each)
        for topic, messages in by_topic.items():
            order = self._feed_of[topic].order
            for decided in in_rounds(messages, lambda leased: reasons.get(leased, ACK), order):
                fails = [each.settle(Verb.FAIL, reason=failed[each]) for each in decided if each in failed]
                acks = self._ack_open([each for each in decided if each not in failed])
                await _all_accepted([*map(asyncio.ensure_future, fails), *acks])

    async def answer_columns(
        self, leases: Sequence[BufferedLease], verb: Verb, reason: str = "", delay_ms: int | None = None
    ) -> None:
        """Give the same answer to all messages of these leases."""
        await _all_accepted(
            [self._feed_of[each.topic].answer_lease(each, verb, reason, delay_ms) for each in leases if _is_open(each)]
        )

    def _ack_open(self, held: Sequence[Held]) -> list[asyncio.Future[Answered]]:
        results = []
        by_lease: dict[WorkerLease, list[PulledMessage]] = {}
        for each in held:
            if isinstance(each, BufferedLease):
                if _is_open(each):
                    results.append(self._feed_of[each.topic].answer_lease(each, Verb.ACK))
            elif isinstance(each, LeasePortion) and each.is_whole:
                if each.is_open:
                    results.append(self._feed_of[each.message.topic].ack_portion(each))
            else:
                for leased in each.all() if isinstance(each, LeasePortion) else [each]:
                    if leased.verb is None and not leased.is_done:
                        by_lease.setdefault(leased.lease, []).append(leased)
        for lease, messages in by_lease.items():
            results.append(self._feed_of[messages[0].message.topic].ack(lease, messages))
        return results


class LeasedColumns:
    """Leases of one topic that a program reads as columns."""

    def __init__(self, consumer: LeaseConsumer, leases: Sequence[BufferedLease]) -> None:
        self.topic = leases[0].topic
        self._consumer = consumer
        self._leases = leases

    def table(self) -> pa.Table:
        """Return the messages as a table, in the schema of a fetch."""
        parts = [part for each in self._leases for part in leased_batches(each.lease.head, each.payloads)]
        return pa.Table.from_batches(parts, schema=FETCH)

    async def answer(self, verb: Verb, reason: str = "", delay_ms: int | None = None) -> None:
        """Answer all messages."""
        await self._consumer.answer_columns(self._leases, verb, clipped(reason), delay_ms)


def _is_open(held: BufferedLease) -> bool:
    return bool(held.lease.open) and not held.lease.answering and not held.lease.lost


def _count(held: Sequence[Held]) -> int:
    """Return the number of messages."""
    return sum([len(each.offsets) if isinstance(each, BufferedLease) else each.count for each in held])


def _lost(held: Held) -> int:
    """Return how many messages without an answer belong to a lease that has ended."""
    if isinstance(held, BufferedLease) or not held.lease.lost:
        return 0
    if isinstance(held, PulledMessage):
        return int(held.verb is None)
    return sum(each.verb is None for each in held.all())


def _log_refusal(result: asyncio.Future[Answered]) -> None:
    error = result.exception()
    if error is not None:
        log.warning("An ack was refused: %s", error.detail if isinstance(error, LakelogError) else error)


async def _all_accepted(results: Sequence[asyncio.Future[Answered]]) -> None:
    done = await asyncio.gather(*(asyncio.shield(each) for each in results), return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
