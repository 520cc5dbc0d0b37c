"""A transport that fails on request, over a real engine in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, TypeVar

from lakelog.client._async.embedded import AsyncEmbeddedTransport
from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.client.embedding.engine import EmbeddedSettings
from lakelog.client.embedding.portal import EngineHost
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.values import Run
from lakelog.errors import LakelogError, NotAllowed, OutcomeUnknown, Overloaded, Unavailable
from lakelog.model.message import Message
from lakelog.model.position import Receipt
from lakelog.wire.frames import PublishFrame

R = TypeVar("R")

QUICK = CallRetryPolicy(limit_seconds=5.0, try_seconds=2.0, first_pause_seconds=0.0005, longest_pause_seconds=0.001)


class Fault(Enum):
    NONE = "it works"
    LOST_ANSWER = "written, but the answer is lost"
    LOST_CALL = "not written, and the outcome is unknown"
    UNAVAILABLE = "certainly not written"
    OVERLOADED = "certainly not written, come back"
    REFUSED = "a definite refusal"
    MORE_PARTITIONS = "partitions are added before it arrives"
    LOST_AND_MORE_PARTITIONS = "written, the answer is lost, and partitions are added"
    PARTLY_LOST = "of several batches, every other answer is lost"
    PARTLY_LOST_AND_MORE_PARTITIONS = "every other batch is written and its answer lost, then partitions are added"


class FaultyTransport(AsyncEmbeddedTransport):
    """Each publish takes the next fault; when there are none left, all works."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        super().__init__(EngineHost(EmbeddedSettings(url="memory://"), "default", "default", own_thread=False))
        self.faults = deque(faults)
        self.calls = 0
        self.numbers: list[tuple[bytes, int] | None] = []

    async def publish_messages(
        self, name: str, messages: Sequence[Message], number: Any, epoch: int | None, seconds: float
    ) -> list[Receipt | LakelogError]:
        self.numbers.append(number)
        fault = await self._before(name)
        return await self._after(name, fault, await super().publish_messages(name, messages, number, epoch, seconds))

    async def publish_frames(
        self, name: str, frames: Sequence[PublishFrame], seconds: float
    ) -> list[Run | LakelogError]:
        self.numbers += [(frame.producer, frame.sequence) for frame in frames]
        fault = await self._before(name)
        if fault is Fault.PARTLY_LOST_AND_MORE_PARTITIONS:
            await super().publish_frames(name, frames[::2], seconds)
            await self.add_partition(name)
            answers = await super().publish_frames(name, frames, seconds)
            return [OutcomeUnknown("lost") if n % 2 == 0 else answer for n, answer in enumerate(answers)]
        if fault is Fault.PARTLY_LOST:
            answers = await super().publish_frames(name, frames, seconds)
            return [OutcomeUnknown("lost") if n % 2 == 0 else answer for n, answer in enumerate(answers)]
        return await self._after(name, fault, await super().publish_frames(name, frames, seconds))

    async def add_partition(self, name: str) -> None:
        engine = (await self._portal.within(self._session.open())).engine
        scope = await self._portal.within(engine.catalog.scope_create("default", "default"))
        topic = await self._portal.within(engine.topics.refresh(scope, name))
        await self._portal.within(engine.topics.alter(scope, name, partitions=topic.partitions + 1))

    async def _before(self, name: str) -> Fault:
        self.calls += 1
        fault = self.faults.popleft() if self.faults else Fault.NONE
        if fault is Fault.LOST_CALL:
            raise OutcomeUnknown("lost")
        if fault is Fault.UNAVAILABLE:
            raise Unavailable("not there")
        if fault is Fault.OVERLOADED:
            raise Overloaded("full", retry_after=0.001)
        if fault is Fault.REFUSED:
            raise NotAllowed("no")
        if fault is Fault.MORE_PARTITIONS:
            await self.add_partition(name)
        return fault

    async def _after(self, name: str, fault: Fault, answer: R) -> R:
        if fault is Fault.LOST_AND_MORE_PARTITIONS:
            await self.add_partition(name)
        if fault in (Fault.LOST_ANSWER, Fault.LOST_AND_MORE_PARTITIONS):
            raise OutcomeUnknown("lost")
        return answer


def client_of(transport: FaultyTransport, policy: CallRetryPolicy = QUICK) -> AsyncLakelog:
    return AsyncLakelog(transport, policy)
