"""The interface between a consumer and what it reads: leases of a group, or positions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from lakelog.client.message_answers import BatchAnswers, HeldSequence
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.model.lease import Answered, Verb

Place = tuple[str, int]
"""A topic and a partition."""


class HeldMessage(Protocol):
    """A message that a handler or a program holds."""

    @property
    def message(self) -> ReceivedMessage[Any]: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def group(self) -> str:
        """The name of the group; empty if there is none."""
        ...

    @property
    def attempt(self) -> int: ...

    @property
    def failures(self) -> int: ...

    async def settle(
        self, verb: Verb, *, reason: str = "", delay_seconds: float | None = None, error: BaseException | None = None
    ) -> Answered:
        """Send the answer, and return when the server has accepted it."""
        ...

    async def extend(self, seconds: float | None = None) -> None:
        """Give the program more time."""
        ...


class HeldColumns(Protocol):
    """Messages of one topic that a program holds as columns."""

    topic: str

    def table(self) -> pa.Table:
        """Return the messages as a table, in the schema of a fetch."""
        ...

    async def answer(self, verb: Verb, reason: str = "", delay_ms: int | None = None) -> None:
        """Answer all messages."""
        ...


class ConsumerCore(BatchAnswers, Protocol):
    """The part of a consumer that runs in its event loop."""

    async def start(self) -> None:
        """Begin to read. Raise an error if the server refuses."""
        ...

    async def stop(self, seconds: float) -> None:
        """Give up everything, within about that many seconds."""
        ...

    async def pull(self, count: int, least: int, seconds: float | None, caller: object) -> HeldSequence[HeldMessage]:
        """Return at most `count` messages, at least `least` unless `seconds` pass.

        `caller` is the task or thread that asks: it is done with the messages that it got before.
        """
        ...

    async def pull_columns(self, count: int, seconds: float | None, caller: object) -> HeldColumns | None:
        """Return about `count` messages of one topic as columns; None if there was none within `seconds`."""
        ...

    async def commit(self, message: ReceivedMessage[Any] | None) -> None:
        """Commit a message and all before it in its partition; without a message, all that were handed out."""
        ...

    async def seek(self, to: datetime, places: Collection[Place]) -> None:
        """Continue with messages of that time or later, in these partitions; in all if none is given."""
        ...

    async def rewind(self, offset: int, places: Collection[Place]) -> None:
        """Continue at an offset of these partitions."""
        ...
