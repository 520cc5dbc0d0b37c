"""The interface between the client and its two transports: over HTTP, and into an engine of this process.

A transport makes one attempt. `Unavailable` and `Overloaded` mean that nothing was written; `OutcomeUnknown` means that
something may have been. `calls` decides whether to repeat a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from lakelog.client.values import Consumed, Run
from lakelog.errors import LakelogError
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.lease import Answered, AnswersRequest, ConsumeRequest
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

    async def consume(self, request: ConsumeRequest, seconds: float, repeat: bool = False) -> Consumed:
        """Lease messages. `repeat`: the call was sent before with the same request id, and its reply was lost.

        The server searches all partitions for the leases of a repeat, because another server may have granted them.
        """
        ...

    async def answer(self, request: AnswersRequest, seconds: float) -> list[Answered | LakelogError]:
        """Send answers about leases. Return one result for each, in order."""
        ...

    async def stage(self, topic: str, options: StageOptions, pieces: Sequence[StagePiece], seconds: float) -> None:
        """Store batches that stay invisible until a decision."""
        ...

    async def close(self) -> None: ...
