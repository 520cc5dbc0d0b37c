"""A message in a handler's hands, and what the handler may say about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from lakelog.client._runtime import async_within
from lakelog.client.messages import ReceivedMessage
from lakelog.client.positions import seconds_of

if TYPE_CHECKING:
    from lakelog.client.work.held import Held

T = TypeVar("T")


class AsyncDelivery(Generic[T]):
    """Given to handlers that take two arguments. The first answer counts; without one the handler's end is the answer.

    An answer returns when the server has accepted it; `LeaseLost` means that somebody else may have the message.
    """

    __slots__ = ("_held",)

    def __init__(self, held: Held) -> None:
        self._held = held

    async def ack(self) -> None:
        """Done."""
        await async_within(self._held.loop, self._held.settle("ack"))

    async def nack(self, *, delay: timedelta | float | None = None, reason: str = "") -> None:
        """Failed: tried again after the delay, or after that of the group's retry policy; too often, a dead letter."""
        seconds = None if delay is None else seconds_of(delay)
        await async_within(self._held.loop, self._held.settle("nack", reason=reason, delay_seconds=seconds))

    async def fail(self, reason: str = "") -> None:
        """Failed for good: a dead letter at once."""
        await async_within(self._held.loop, self._held.settle("fail", reason=reason))

    async def discard(self, reason: str = "") -> None:
        """Not wanted: neither tried again nor kept as a dead letter."""
        await async_within(self._held.loop, self._held.settle("discard", reason=reason))

    async def extend(self, seconds: timedelta | float | None = None) -> None:
        """The handler may take so long from now; without a number, its usual time once more."""
        more = None if seconds is None else seconds_of(seconds)
        await async_within(self._held.loop, self._held.extend(more))

    @property
    def message(self) -> ReceivedMessage[T]:
        return self._held.message

    @property
    def value(self) -> T:
        return self.message.value

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def topic(self) -> str:
        return self.message.topic

    @property
    def partition(self) -> int:
        return self.message.partition

    @property
    def offset(self) -> int:
        return self.message.offset

    @property
    def key(self) -> bytes | None:
        return self.message.key

    @property
    def headers(self) -> Mapping[str, str]:
        return self.message.headers

    @property
    def correlation_id(self) -> str | None:
        return self.message.correlation_id

    @property
    def appended_at(self) -> datetime:
        return self.message.appended_at

    @property
    def attempt(self) -> int:
        """The how-manieth delivery this is, from 1."""
        return self._held.attempt

    @property
    def failures(self) -> int:
        """How often it has failed before."""
        return self._held.failures

    def __repr__(self) -> str:
        return f"AsyncDelivery(id={self.id!r}, topic={self.topic!r}, key={self.key!r}, attempt={self.attempt})"
