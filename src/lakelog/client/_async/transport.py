"""The interface between the client and its two transports: over HTTP, and into an engine of this process.

A transport makes one attempt. `Unavailable` and `Overloaded` mean that nothing was written; `OutcomeUnknown` means that
something may have been. `calls` decides whether to repeat a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from lakelog.client._async.group_transport import AsyncGroupTransport
from lakelog.client.values import Run
from lakelog.errors import LakelogError
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.message import Message
from lakelog.model.position import Position, Receipt
from lakelog.model.write import StageOptions, StagePiece
from lakelog.wire.frames import PublishFrame
from lakelog.wire.operations.operation import Operation

Asked = TypeVar("Asked")
Found = TypeVar("Found")

Number = tuple[bytes, int]
"""A producer id and a sequence."""


class AsyncTransport(Protocol):
    """The operations of a transport. A call that takes longer than `seconds` fails as if its reply had been lost."""

    @property
    def groups(self) -> AsyncGroupTransport:
        """The group operations."""
        ...

    async def open(self, seconds: float) -> None:
        """Prepare for calls, if that is needed. Every other method does this itself."""
        ...

    async def call(self, operation: Operation[Asked, Found], request: Asked, seconds: float) -> Found:
        """Run an operation of the table, and return its reply."""
        ...

    async def publish_messages(
        self, name: str, messages: Sequence[Message], number: Number | None, epoch: int | None, seconds: float
    ) -> list[Receipt | LakelogError]:
        """Publish messages. Numbered messages go to one partition, all or none of them."""
        ...

    async def publish_frames(
        self, name: str, frames: Sequence[PublishFrame], seconds: float
    ) -> list[Run | LakelogError]: ...

    async def fetch(
        self, name: str, partition: int, position: Position, limits: FetchLimits, seconds: float
    ) -> FetchedBatches: ...

    async def stage(self, topic: str, options: StageOptions, pieces: Sequence[StagePiece], seconds: float) -> None:
        """Store batches that stay invisible until a decision."""
        ...

    async def close(self) -> None: ...
