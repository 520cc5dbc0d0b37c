"""The transport into an engine of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from lakelog.client._async.transport import Number
from lakelog.client.embedding.portal import AsyncPortal, EngineHost
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


class AsyncEmbeddedTransport:
    """The `AsyncTransport` into an engine of this process."""

    def __init__(self, host: EngineHost) -> None:
        self._portal = AsyncPortal(host)
        self._session = host.session

    async def open(self, seconds: float) -> None:
        await self._portal.run(self._session.open, seconds, writes=False)

    async def call(self, operation: Operation[Asked, Found], request: Asked, seconds: float) -> Found:
        writes = not operation.only_reads
        found: Found = await self._portal.run(self._session.call, seconds, operation, request, writes=writes)
        return found

    async def publish_messages(
        self, name: str, messages: Sequence[Message], number: Number | None, epoch: int | None, seconds: float
    ) -> list[Receipt | LakelogError]:
        return await self._portal.run(self._session.publish_messages, seconds, name, messages, number, epoch)

    async def publish_frames(
        self, name: str, frames: Sequence[PublishFrame], seconds: float
    ) -> list[Run | LakelogError]:
        return await self._portal.run(self._session.publish_frames, seconds, name, frames)

    async def fetch(
        self, name: str, partition: int, position: Position, limits: FetchLimits, seconds: float
    ) -> FetchedBatches:
        return await self._portal.run(self._session.fetch, seconds, name, partition, position, limits, writes=False)

    async def consume(self, request: ConsumeRequest, seconds: float, repeat: bool = False) -> Consumed:
        return await self._portal.run(self._session.consume, seconds, request, repeat)

    async def answer(self, request: AnswersRequest, seconds: float) -> list[Answered | LakelogError]:
        return await self._portal.run(self._session.answer, seconds, request)

    async def stage(self, topic: str, options: StageOptions, pieces: Sequence[StagePiece], seconds: float) -> None:
        await self._portal.run(self._session.stage, seconds, topic, options, pieces)

    async def close(self) -> None:
        await self._portal.close()
