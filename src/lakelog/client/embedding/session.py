"""The calls of one client into an embedded engine, as coroutines in the engine's event loop.

An engine in memory that has a name is shared by all clients of that name, and outlives them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

from lakelog.client import processes
from lakelog.client.embedding.engine import EmbeddedEngine, EmbeddedSettings
from lakelog.client.loops import LoopThread
from lakelog.client.values import Consumed, Run
from lakelog.engine import Frame, Numbered
from lakelog.engine.leasing.lease_heads import leases_head
from lakelog.engine.operations import Caller, Verbs, bind
from lakelog.errors import LakelogError
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.lease import Answered, AnswersRequest, ConsumeRequest
from lakelog.model.message import Message
from lakelog.model.position import Position, Receipt
from lakelog.model.topic import Scope
from lakelog.model.write import StageOptions, StagePiece
from lakelog.storage.store import Payload
from lakelog.wire.frames import NO_PRODUCER, PublishFrame
from lakelog.wire.operations.operation import Operation

Asked = TypeVar("Asked")
Found = TypeVar("Found")
Number = tuple[bytes, int]
NewSession = Callable[[EmbeddedSettings, str, str], "EmbeddedSession"]


class EmbeddedSession:
    """The calls of one client, in one environment."""

    def __init__(self, settings: EmbeddedSettings, project: str, environment: str) -> None:
        self._settings = settings
        self._place = (project, environment)
        self._opening: asyncio.Task[EmbeddedEngine] | None = None
        self._verbs: Verbs | None = None
        self._host = socket.gethostname()

    async def open(self) -> EmbeddedEngine:
        """Return the engine. The first call opens it, and so does the first call after a failure."""
        if self._opening is None or _failed(self._opening):
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        """Close the engine, unless other clients share it."""
        is_shared = self._settings.is_in_memory and self._settings.memory_name != ""
        if self._opening is not None and not is_shared:
            # The calls that waited for the engine may have given up before it was open.
            await asyncio.wait([self._opening])
            if not _failed(self._opening):
                await self._opening.result().close()

    async def enter(self) -> tuple[EmbeddedEngine, Scope]:
        """Return the engine and the environment."""
        embedded = await self.open()
        return embedded, await embedded.scope(*self._place)

    async def call(self, operation: Operation[Asked, Found], request: Asked) -> Found:
        """Run an operation of the table, and return its reply."""
        embedded, scope = await self.enter()
        if self._verbs is None:
            self._verbs = bind(embedded.engine)
        return await self._verbs.call(operation, Caller(scope=scope, host=self._host), request)

    async def publish_messages(
        self, name: str, messages: Sequence[Message], number: Number | None, epoch: int | None
    ) -> list[Receipt | LakelogError]:
        """Publish messages. Numbered messages go to one partition, all or none of them."""
        embedded, scope = await self.enter()
        numbered = Numbered(producer=number[0], sequence=number[1]) if number else None
        return await embedded.engine.publisher.messages(scope, name, messages, numbered=numbered, epoch=epoch)

    async def publish_frames(self, name: str, frames: Sequence[PublishFrame]) -> list[Run | LakelogError]:
        """Publish encoded batches."""
        embedded, scope = await self.enter()
        answers = await embedded.engine.publisher.frames(scope, name, [_frame(frame) for frame in frames])
        return [
            answer if isinstance(answer, LakelogError) else Run(answer.partition, answer.offset, answer.count)
            for answer in answers
        ]

    async def fetch(self, name: str, partition: int, position: Position, limits: FetchLimits) -> FetchedBatches:
        """Return stored batches of a partition."""
        embedded, scope = await self.enter()
        return await embedded.engine.fetcher.fetch(scope, name, partition, position, limits)

    async def consume(self, request: ConsumeRequest, repeat: bool) -> Consumed:
        """Lease messages."""
        embedded, scope = await self.enter()
        found = await embedded.engine.leases.consume(scope, request, repeat=repeat)
        return Consumed(
            head=leases_head(found),
            payloads=[stored.batch.payload for leased in found.leases for stored in leased.pieces],
            answered=found.answered or (),
            refusal=found.refusal,
        )

    async def answer(self, request: AnswersRequest) -> list[Answered | LakelogError]:
        """Send answers about leases. Return one result for each, in order."""
        embedded, scope = await self.enter()
        return await embedded.engine.leases.answer(
            scope, request.topic, request.group, request.owner, request.answers, generation=request.generation
        )

    async def stage(self, topic: str, options: StageOptions, pieces: Sequence[StagePiece]) -> None:
        """Store batches that stay invisible until a decision."""
        embedded, scope = await self.enter()
        await embedded.engine.writes.stage(scope, topic, options, pieces)

    async def _open(self) -> EmbeddedEngine:
        if self._settings.is_in_memory:
            return await memory_engines.open(self._settings)
        return await EmbeddedEngine.open(self._settings)


class MemoryEngines:
    """The engines in memory that have a name, and the thread of all engines in memory."""

    def __init__(self) -> None:
        self.reset_after_fork()
        processes.after_fork(self)

    def reset_after_fork(self) -> None:
        """Forget the engines: they stay with the parent."""
        self.thread = LoopThread("lakelog-memory")
        self._named: dict[str, asyncio.Task[EmbeddedEngine]] = {}
        self._sessions: dict[str, NewSession] = {}

    async def open(self, settings: EmbeddedSettings) -> EmbeddedEngine:
        """Return the engine of that name, or a new one if it has no name."""
        name = settings.memory_name
        if not name:
            return await EmbeddedEngine.open(settings)
        if name not in self._named or _failed(self._named[name]):
            self._named[name] = asyncio.create_task(EmbeddedEngine.open(settings))
        return await asyncio.shield(self._named[name])

    def session(self, settings: EmbeddedSettings, project: str, environment: str) -> EmbeddedSession:
        """Return a new session of a client, of the kind that was set for the engine's name."""
        new = self._sessions.get(settings.memory_name) if settings.is_in_memory else None
        return (new or EmbeddedSession)(settings, project, environment)

    def set_session(self, name: str, new: NewSession) -> None:
        """Set what makes the sessions of the engine of that name from now on."""
        self._sessions[name] = new

    async def remove(self, name: str) -> None:
        """Close the engine of that name. Its messages are lost."""
        self._sessions.pop(name, None)
        opening = self._named.pop(name, None)
        if opening is not None and not _failed(opening):
            await (await opening).close()


memory_engines = MemoryEngines()


def _failed(opening: asyncio.Task[EmbeddedEngine]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


def _frame(frame: PublishFrame) -> Frame:
    numbered = None
    if frame.producer != NO_PRODUCER:
        numbered = Numbered(producer=frame.producer, sequence=frame.sequence)
    payload = Payload(data=bytes(frame.payload), count=frame.count)
    return Frame(partition=frame.partition, payload=payload, numbered=numbered, epoch=frame.epoch)
