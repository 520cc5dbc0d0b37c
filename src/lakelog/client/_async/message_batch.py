"""Batches of a pull consumer: messages in a sequence, or columns, with answers for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from lakelog.client._async.delivery import AsyncDelivery
from lakelog.client.consumer.running import AsyncConsumerLoop
from lakelog.model.arguments import check_seconds
from lakelog.model.lease import Verb

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.consumer.core import ConsumerCore, HeldColumns, HeldMessage

T = TypeVar("T")


class AsyncBatch(Sequence["AsyncDelivery[T]"], Generic[T]):
    """The messages of `consumer.batch`, as a sequence. Each can be answered on its own before the rest is acked."""

    def __init__(self, core: ConsumerCore, held: Sequence[HeldMessage], loop: AsyncConsumerLoop) -> None:
        self._core = core
        self._held = held
        self._loop = loop

    @property
    def values(self) -> list[T]:
        """The values of the messages, in order."""
        return [each.message.value for each in self._held]

    async def ack(self) -> None:
        """Finish all messages that have no answer yet. Raise `LeaseLost` if another consumer may have some of them."""
        await self._loop.run(self._core.ack(self._held))

    async def nack(self, *, delay: timedelta | float | None = None, reason: str = "") -> None:
        """Report a failure of all messages that have no answer yet. They are delivered again later.

        Args:
            delay: The time until the next delivery, in seconds or as a timedelta, 0 or more. Default: the delay of the
                group's retry policy.
            reason: A text for the log and for dead letters, at most 4096 bytes; more is cut off. Default: empty.
        """
        seconds = None if delay is None else check_seconds("delay", delay)
        await self._loop.run(self._core.nack(self._held, reason, seconds))

    @overload
    def __getitem__(self, index: int) -> AsyncDelivery[T]: ...
    @overload
    def __getitem__(self, index: slice) -> AsyncBatch[T]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return AsyncBatch(self._core, self._held[index], self._loop)
        return AsyncDelivery(self._held[index])

    def __iter__(self) -> Iterator[AsyncDelivery[T]]:
        return map(AsyncDelivery, self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"AsyncBatch({len(self._held)} messages)"


class AsyncArrowBatch:
    """Messages of one topic as columns, with one answer for all of them. Arrow libraries accept it as a table."""

    def __init__(self, held: HeldColumns, loop: AsyncConsumerLoop) -> None:
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
