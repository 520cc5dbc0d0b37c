"""Messages that were read by position: they have the form of a delivery, and no answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from lakelog.client.reading.messages import ReceivedMessage
from lakelog.errors import InvalidRequest
from lakelog.model.lease import Answered, Verb

_NO_LEASE = "There is no lease to extend."


class ReadMessage:
    """A message that was read by position, in the form of a delivery. It has no answers."""

    __slots__ = ("_hint", "group", "loop", "message")

    attempt = 1
    failures = 0

    def __init__(
        self, message: ReceivedMessage[Any], loop: asyncio.AbstractEventLoop, hint: str, group: str = ""
    ) -> None:
        self.message = message
        self.loop = loop
        self.group = group
        self._hint = hint

    async def settle(self, verb: Verb, **_: object) -> Answered:
        """Raise an error that says what to do instead."""
        raise refusal(self._hint)

    async def extend(self, seconds: float | None = None) -> None:
        """Raise an error: there is no lease."""
        raise refusal(_NO_LEASE)


class NoAnswers:
    """The answers to a batch of messages that were read by position: there are none.

    Args:
        hint: The advice that the error gives.
    """

    def __init__(self, hint: str) -> None:
        self.hint = hint

    async def ack(self, held: Sequence[Any], failed: Mapping[Any, str]) -> None:
        """Raise an error that says what to do instead."""
        raise refusal(self.hint)

    async def nack(self, held: Sequence[Any], reason: str, delay_seconds: float | None) -> None:
        """Raise an error: messages that are read by position are not retried."""
        raise refusal(self.hint)

    async def extend(self, held: Sequence[Any], seconds: float | None) -> None:
        """Raise an error: there is no lease."""
        raise refusal(_NO_LEASE)


def refusal(hint: str) -> InvalidRequest:
    """Return the error for an answer."""
    return InvalidRequest(f"Messages that are read by position have no answers. {hint}")
