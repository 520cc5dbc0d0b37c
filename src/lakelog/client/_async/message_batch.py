"""Batches of handlers and pull consumers: messages in a sequence, or columns, with answers for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from lakelog.client._async.delivery import AsyncDelivery
from lakelog.client.consumer.running import AsyncCallLoop
from lakelog.client.message_answers import BatchAnswers, HeldList, HeldSequence
from lakelog.client.values import Run, runs_of
from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_positive_seconds, check_seconds
from lakelog.model.lease import Verb

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.consumer.core import HeldColumns, HeldMessage

T = TypeVar("T")


class AsyncBatch(Sequence["AsyncDelivery[T]"], Generic[T]):
    """The messages of a batch handler or of `consumer.batch`, as a sequence. Each can be answered on its own.

    When a batch handler returns, the messages without an answer are acked; when it raises, they are retried. A program
    that pulls calls `ack` or `nack`.
    """

    def __init__(
        self,
        answers: BatchAnswers,
        held: HeldSequence[HeldMessage],
        loop: AsyncCallLoop,
        failed: dict[HeldMessage, str] | None = None,
    ) -> None:
        self._answers = answers
        self._held = held
        self._loop = loop
        self._failed = {} if failed is None else failed

    @property
    def values(self) -> list[T]:
        """The values of the messages, in order."""
        return [message.value for message in self._held.messages]

    @property
    def runs(self) -> list[Run]:
        """The offsets of the messages as runs without gaps, sorted by partition, for a batch of one topic."""
        return runs_of((message.partition, message.offset) for message in self._held.messages)

    def fail(self, message: AsyncDelivery[T], reason: str = "") -> None:
        """Name a message that failed for good. It becomes a dead letter when the others of the batch are acked.

        With a batch handler, that is when the handler returns. If it raises, this message is retried like the others.

        Args:
            message: A message of this batch. Another one raises `InvalidRequest`.
            reason: A text for the log and for the dead letter, at most 4096 bytes; more is cut off. Default: empty.
        """
        if message._held not in self._held:
            raise InvalidRequest(f"Message {message.id} is not in this batch. Give a message of the batch.")
        self._failed[message._held] = reason

    async def ack(self) -> None:
        """Finish all messages that have no answer yet. Raise `LeaseLost` if another consumer may have some of them."""
        await self._loop.run(self._answers.ack(self._held, self._failed))

    async def nack(self, *, delay: timedelta | float | None = None, reason: str = "") -> None:
        """Report a failure of all messages that have no answer yet. They are delivered again later.

        Args:
            delay: The time until the next delivery, in seconds or as a timedelta, 0 or more. Default: the delay of the
                group's retry policy.
            reason: A text for the log and for dead letters, at most 4096 bytes; more is cut off. Default: empty.
        """
        seconds = None if delay is None else check_seconds("delay", delay)
        await self._loop.run(self._answers.nack(self._held, reason, seconds))

    async def extend(self, seconds: timedelta | float | None = None) -> None:
        """Give the handler or the program more time for the messages that have no answer yet.

        Args:
            seconds: The time from now, in seconds or as a timedelta, above zero. Default: the `ack_timeout` of the
                subscription or of the consumer.
        """
        more = None if seconds is None else check_positive_seconds("seconds", seconds)
        await self._loop.run(self._answers.extend(self._held, more))

    @overload
    def __getitem__(self, index: int) -> AsyncDelivery[T]: ...
    @overload
    def __getitem__(self, index: slice) -> AsyncBatch[T]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return AsyncBatch(self._answers, HeldList(self._held[index]), self._loop, self._failed)
        return AsyncDelivery(self._held[index])

    def __iter__(self) -> Iterator[AsyncDelivery[T]]:
        return map(AsyncDelivery, self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"AsyncBatch({len(self._held)} messages)"


class AsyncArrowBatch:
    """Messages of one topic as columns, with one answer for all of them. Arrow libraries accept it as a table."""

    def __init__(self, held: HeldColumns, loop: AsyncCallLoop) -> None:
        self._held = held
        self._loop = loop
        self._table: pa.Table | None = None

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._held.topic

    @property
    def table(self) -> pa.Table:
        """The messages as a `pyarrow.Table`, with the columns of `fetch_arrow`."""
        if self._table is None:
            self._table = self._held.table()
        return self._table

    async def ack(self) -> None:
        """Finish all messages. Raise `LeaseLost` if another consumer may have some of them."""
        await self._loop.run(self._held.answer(Verb.ACK))

    async def nack(self, *, delay: timedelta | float | None = None, reason: str = "") -> None:
        """Report a failure of all messages. They are delivered again later.

        Args:
            delay: The time until the next delivery, in seconds or as a timedelta, 0 or more. Default: the delay of the
                group's retry policy.
            reason: A text for the log and for dead letters, at most 4096 bytes; more is cut off. Default: empty.
        """
        delay_ms = None if delay is None else round(check_seconds("delay", delay) * 1000)
        await self._loop.run(self._held.answer(Verb.NACK, reason, delay_ms))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return self.table.num_rows  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"AsyncArrowBatch(topic={self.topic!r}, {len(self)} messages)"
