"""A pull consumer: the program asks for messages, one by one, in batches or as Arrow columns."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.delivery import AsyncDelivery
from lakelog.client._async.message_batch import AsyncArrowBatch, AsyncBatch
from lakelog.client.consumer.assignment import ManualAssignment
from lakelog.client.consumer.options import ConsumerOptions
from lakelog.client.consumer.receive_tracing import receive_began, trace_batch, trace_message, trace_table
from lakelog.client.consumer.running import AsyncConsumerLoop
from lakelog.client.worker.pool import STOP_SECONDS, WorkerSettings
from lakelog.errors import Closed, InvalidRequest
from lakelog.model.arguments import check_seconds, check_time, check_whole
from lakelog.model.limits import MAX_BATCH_MESSAGES

if TYPE_CHECKING:
    from lakelog.client.consumer.core import ConsumerCore
    from lakelog.client.consumer.opening import Opening

T = TypeVar("T")

_LATER = timedelta(microseconds=1)
"""The step between two times of messages."""


class AsyncConsumer(Generic[T]):
    """A consumer, made by `log.consumer(…)`. It joins its group when it is first used, or at `async with`.

    Messages come with `next`, `batch`, `arrow`, or in a loop: `async for message in consumer`. Several tasks or threads
    may call `next`.

    In a lease group, a message of a key comes after the previous message of the key has its answer, unless both are in
    one batch. Leases are kept until the answer, at most for `ack_timeout`. Leaving the block gives back all messages
    without an answer; that does not count as a failure.

    In a cursor group, messages of a partition come in order, and `commit` decides when their position is committed.
    """

    def __init__(self, options: ConsumerOptions, settings: WorkerSettings, calls: AsyncCalls) -> None:
        self._options = options
        self._settings = settings
        self._calls = calls
        self._loop = AsyncConsumerLoop()
        self._opening: Opening | None = None
        self._core: ConsumerCore | None = None
        self._closed = False
        self._assignment = ManualAssignment(options.topics)
        self._stream: weakref.ref[AsyncConsumerStream[T]] | None = None

    @property
    def group(self) -> str | None:
        """The name of the group; None for a consumer without a group."""
        return self._options.group_name

    async def next(self, timeout: timedelta | float | None = None) -> AsyncDelivery[T] | None:
        """Return the next message; None if none arrived within the time.

        Args:
            timeout: How long to wait for a message, in seconds or as a timedelta, 0 or more. Default: None, without a
                limit.
        """
        self._check_no_stream()
        return await self._next(_seconds(timeout))

    async def batch(self, count: int, *, timeout: timedelta | float | None = None, least: int = 1) -> AsyncBatch[T]:
        """Return a batch of messages: `count`, or as many as there are now, but at least `least`.

        After the time, the batch has the messages that arrived, and may be empty.

        Args:
            count: The largest number of messages, from 1 to 10,000. A group has at most 2,000 unanswered messages of a
                partition by default, so that a batch of fewer partitions is smaller.
            timeout: How long to wait for messages, in seconds or as a timedelta, 0 or more. Default: None, without a
                limit.
            least: The number of messages to wait for, from 1 to `count`. Default: 1.
        """
        check_whole("count", count, 1, MAX_BATCH_MESSAGES)
        check_whole("least", least, 1, count)
        self._check_no_stream()
        core = await self._opened()
        began = receive_began()
        found = await self._loop.run(core.pull(count, least, _seconds(timeout), self._loop.caller))
        if began and found:
            trace_batch(began, self.group, found.messages)
        return AsyncBatch(core, found, self._loop)

    async def arrow(
        self, count: int = MAX_BATCH_MESSAGES, *, timeout: timedelta | float | None = None
    ) -> AsyncIterator[AsyncArrowBatch]:
        """Iterate over the messages as Arrow tables, each with messages of one topic.

        Args:
            count: About the largest number of messages of a table, from 1 to 10,000. Default: 10,000.
            timeout: End the iteration if no message arrives within this time, in seconds or as a timedelta. Default:
                None: the iteration does not end.
        """
        check_whole("count", count, 1, MAX_BATCH_MESSAGES)
        seconds = _seconds(timeout)
        while True:
            self._check_no_stream()
            core = await self._opened()
            began = receive_began()
            found = await self._loop.run(core.pull_columns(count, seconds, self._loop.caller))
            if found is None:
                return
            batch = AsyncArrowBatch(found, self._loop)
            if began:
                trace_table(began, self.group, batch.topic, batch.table)
            yield batch

    async def commit(self, message: AsyncDelivery[Any] | None = None) -> None:
        """Commit messages that the program has processed.

        In a cursor group, this commits the position after the message. In a lease group, it acks.

        Args:
            message: The processed message. In a cursor group, all messages before it in its partition are committed
                too. Default: None, which commits all messages that this consumer has returned so far.
        """
        core = await self._opened()
        await self._loop.run(core.commit(None if message is None else message.message))

    def assign(self, topic: str, partition: int) -> None:
        """Assign a partition to this consumer. It takes effect with the next `seek` or `rewind`.

        Without a group, the consumer then reads the assigned partitions only. In a group, which shares its partitions
        among its members, `seek` and `rewind` then move the group in the assigned partitions only.

        Args:
            topic: The name of a topic that the consumer reads. Another one raises `InvalidRequest`.
            partition: The number of the partition.
        """
        self._check_no_stream()
        self._assignment.add(topic, partition)

    def unassign(self, topic: str, partition: int) -> None:
        """Remove a partition from those of `assign`. It takes effect with the next `seek` or `rewind`.

        Args:
            topic: The name of the topic.
            partition: The number of the partition. One that is not assigned raises `NotAssigned`.
        """
        self._check_no_stream()
        self._assignment.remove(topic, partition)

    async def seek(self, to: datetime) -> None:
        """Continue with the earliest messages that are strictly later than a time, in all or the assigned partitions.

        In a group, this moves the whole group. All its members stay members, and their leases end.

        Args:
            to: A datetime with a time zone.
        """
        self._check_no_stream()
        check_time("to", to)
        core = await self._opened()
        await self._loop.run(core.seek(to + _LATER, self._assignment.places))

    async def rewind(self, offset: int) -> None:
        """Continue at an offset of the assigned partitions; without `assign`, of partition 0 of each topic.

        In a group, this moves the whole group. All its members stay members, and their leases end.

        Args:
            offset: The offset of the next message, 0 or more. One outside the log is moved to the nearest inside it.
        """
        self._check_no_stream()
        check_whole("offset", offset, 0)
        core = await self._opened()
        await self._loop.run(core.rewind(offset, self._assignment.rewound()))

    def __aiter__(self) -> AsyncConsumerStream[T]:
        self._check_no_stream()
        stream = AsyncConsumerStream(self)
        self._stream = weakref.ref(stream)
        return stream

    async def close(self) -> None:
        """Give back all messages without an answer, and leave the group. Closing twice is allowed."""
        await self.finish(STOP_SECONDS)

    async def finish(self, seconds: float) -> None:
        if self._closed:
            return
        self._closed = True
        self._calls.producers.discard(self)
        self._core = None
        if self._opening is not None:
            await self._loop.run(self._opening.close(seconds))
        self._loop.stop()

    async def __aenter__(self) -> AsyncConsumer[T]:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _next(self, seconds: float | None) -> AsyncDelivery[T] | None:
        core = await self._opened()
        began = receive_began()
        found = await self._loop.run(core.pull(1, 1, seconds, self._loop.caller))
        if not found:
            return None
        if began:
            trace_message(began, self.group, found[0].message)
        return AsyncDelivery(found[0])

    async def _opened(self) -> ConsumerCore:
        self._calls.check_open()
        if self._closed:
            raise Closed("This consumer is closed. Make another one with log.consumer().")
        if self._core is None:
            # Arrow loads slowly, and only consumers that are used need it.
            from lakelog.client.consumer.opening import Opening

            if self._opening is None:
                self._opening = Opening(self._options, self.group, self._settings, self._calls.policy)
            core = await self._loop.run(self._opening.opened())
            if self._closed:
                raise Closed("This consumer is closed.")
            self._core = core
            self._calls.producers.add(self)
        return self._core

    def _check_no_stream(self) -> None:
        if self._stream is not None and self._stream() is not None:
            raise InvalidRequest("A loop reads this consumer already. A consumer has one stream: leave the loop first.")

    def __repr__(self) -> str:
        topics = ", ".join(repr(each.name) for each in self._options.topics)
        return f"AsyncConsumer({topics}, group={self.group!r}, url={self._calls.place!r})"


class AsyncConsumerStream(Generic[T]):
    """The messages of a consumer in a loop. It ends when the consumer is closed."""

    def __init__(self, consumer: AsyncConsumer[T]) -> None:
        self._consumer = consumer

    def __aiter__(self) -> AsyncConsumerStream[T]:
        return self

    async def __anext__(self) -> AsyncDelivery[T]:
        try:
            found = await self._consumer._next(None)
        except Closed:
            found = None
        if found is None:
            raise StopAsyncIteration
        return found


def _seconds(timeout: timedelta | float | None) -> float | None:
    return None if timeout is None else check_seconds("timeout", timeout)
