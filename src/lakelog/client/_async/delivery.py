"""A delivered message, and the answers that a handler can give about it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from lakelog.client._runtime import async_within
from lakelog.client.delivery_log import DeliveryLog
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.model.arguments import check_positive_seconds, check_seconds
from lakelog.model.lease import Verb

if TYPE_CHECKING:
    from lakelog.client.consumer.core import HeldMessage

T_co = TypeVar("T_co", covariant=True)


class AsyncDelivery(Generic[T_co]):
    """A delivered message and the answers to it, for handlers that take two arguments.

    The first answer counts; without one, the end of the handler is the answer. An answer returns when the server has
    accepted it. `LeaseLost` means that another worker may have the message: drop the result.
    """

    __slots__ = ("_held",)

    def __init__(self, held: HeldMessage) -> None:
        self._held = held

    async def ack(self) -> None:
        """Finish the message: it is not delivered again."""
        await async_within(self._held.loop, self._held.settle(Verb.ACK))

    async def nack(self, *, delay: timedelta | float | None = None, reason: str = "") -> None:
        """Report a failure. The message is delivered again later; after its last retry it becomes a dead letter.

        Args:
            delay: The time until the next delivery, in seconds or as a timedelta, 0 or more. Default: the delay of the
                group's retry policy.
            reason: A text for the log and for the dead letter, at most 4096 bytes; more is cut off. Default: empty.
        """
        seconds = None if delay is None else check_seconds("delay", delay)
        nacked = self._held.settle(Verb.NACK, reason=reason, delay_seconds=seconds, error=sys.exception())
        await async_within(self._held.loop, nacked)

    async def fail(self, reason: str = "") -> None:
        """Report a failure that no retry can fix. The message becomes a dead letter immediately.

        Args:
            reason: A text for the log and for the dead letter, at most 4096 bytes; more is cut off. Default: empty.
        """
        await async_within(self._held.loop, self._held.settle(Verb.FAIL, reason=reason, error=sys.exception()))

    async def discard(self, reason: str = "") -> None:
        """Drop the message: it is neither delivered again nor kept as a dead letter.

        Args:
            reason: A text, at most 4096 bytes; more is cut off. Default: empty.
        """
        await async_within(self._held.loop, self._held.settle(Verb.DISCARD, reason=reason))

    async def extend(self, seconds: timedelta | float | None = None) -> None:
        """Give the handler more time.

        Args:
            seconds: How long the handler may take from now, in seconds or as a timedelta, above zero. Default: the
                `ack_timeout` of the subscription.
        """
        more = None if seconds is None else check_positive_seconds("seconds", seconds)
        await async_within(self._held.loop, self._held.extend(more))

    @property
    def message(self) -> ReceivedMessage[T_co]:
        """The message."""
        return self._held.message

    @property
    def value(self) -> T_co:
        """The value, decoded by the topic's type or the content type."""
        return self.message.value

    @property
    def id(self) -> str:
        """The id of the message, which is never reused."""
        return self.message.id

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.message.topic

    @property
    def partition(self) -> int:
        """The partition of the message."""
        return self.message.partition

    @property
    def offset(self) -> int:
        """The offset of the message in its partition."""
        return self.message.offset

    @property
    def key(self) -> bytes | None:
        """The key, as bytes; None if the message has none."""
        return self.message.key

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, text by name."""
        return self.message.headers

    @property
    def correlation_id(self) -> str | None:
        """The correlation id that the publisher gave; None if it gave none."""
        return self.message.correlation_id

    @property
    def appended_at(self) -> datetime:
        """When the message was appended to the log, in UTC."""
        return self.message.appended_at

    @property
    def attempt(self) -> int:
        """Delivery attempt, starting at 1."""
        return self._held.attempt

    @property
    def failures(self) -> int:
        """How often the message has failed before."""
        return self._held.failures

    @property
    def log(self) -> DeliveryLog:
        """A logger whose lines name the message: topic, group, partition, offset, attempt and id.

        It writes to the logger `lakelog.delivery`, in the text of each line and as fields of each record.
        """
        return DeliveryLog(self._held)

    def __repr__(self) -> str:
        return f"AsyncDelivery(id={self.id!r}, topic={self.topic!r}, key={self.key!r}, attempt={self.attempt})"
