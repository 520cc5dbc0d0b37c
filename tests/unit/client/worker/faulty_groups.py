"""A transport whose calls fail on request, over a real engine in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Any

from msgspec import structs

from lakelog.client._async.embedded import AsyncEmbeddedTransport
from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.client.embedding.engine import EmbeddedSettings
from lakelog.client.embedding.portal import EngineHost
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.values import Consumed
from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable, UnknownMember
from lakelog.model.lease import Answered, AnswersRequest, ConsumeRequest, LeaseAnswer
from lakelog.model.membership import JoinRequest
from lakelog.wire.leases import LeasesHead
from lakelog.wire.operations import Operation, groups

LOST, AWAY, HANGS = "done, but the answer is lost", "not done", "done, and the answer never comes"
FIRST_LOST = "done, but of the first it is not known"


class FaultyLeaseTransport(AsyncEmbeddedTransport):
    """Each consume and each answer takes its next fault; without one it works."""

    def __init__(self) -> None:
        super().__init__(EngineHost(EmbeddedSettings(url="memory://"), "default", "default", own_thread=False))
        self.consume_faults: deque[str] = deque()
        self.answer_faults: deque[str | LakelogError] = deque()
        self.describe_faults: deque[LakelogError] = deque()
        self.is_older = False
        """True for a server of an older version, whose reply to a join has no settings."""
        self.refusals: deque[LakelogError] = deque()
        """Errors because of which consumes with answers get no lease."""
        self.requests: list[ConsumeRequest] = []
        self.repeats: list[bool] = []
        self.said: list[list[LeaseAnswer]] = []
        self.joined: list[JoinRequest] = []
        self.calls: list[str] = []
        self.gate: asyncio.Event | None = None
        self.forgotten = False

    async def consume(self, request: ConsumeRequest, seconds: float, repeat: bool = False) -> Consumed:
        self.requests.append(request)
        self.repeats.append(repeat)
        if request.answers:
            answers = AnswersRequest(
                topic=request.topic, group=request.group, owner=request.owner, answers=request.answers
            )
            answered = await self.answer(answers, seconds)
            if self.refusals:
                head = LeasesHead(incarnation=0, leases=[])
                return Consumed(head=head, payloads=(), answered=answered, refusal=self.refusals.popleft())
            found = await self._consume(structs.replace(request, answers=(), wait_ms=0), seconds, repeat)
            return replace(found, answered=answered)
        return await self._consume(request, seconds, repeat)

    async def _consume(self, request: ConsumeRequest, seconds: float, repeat: bool) -> Consumed:
        fault = self.consume_faults.popleft() if self.consume_faults else ""
        if fault == AWAY:
            raise Unavailable("away")
        found = await super().consume(request, seconds, repeat)
        if fault and not found.leases:
            self.consume_faults.appendleft(fault)
            return found
        if fault == HANGS:
            await asyncio.sleep(600)
        if fault == LOST:
            raise OutcomeUnknown("lost")
        return found

    async def answer(self, request: AnswersRequest, seconds: float) -> list[Answered | LakelogError]:
        answers = list(request.answers)
        self.said.append(answers)
        if self.gate is not None and any(answer.verb == "ack" for answer in answers):
            await self.gate.wait()
        fault = self.answer_faults.popleft() if self.answer_faults else ""
        if fault == AWAY:
            raise Unavailable("away")
        if isinstance(fault, LakelogError):
            return [fault] * len(answers)
        results = await super().answer(request, seconds)
        if fault == LOST:
            raise OutcomeUnknown("lost")
        if fault == FIRST_LOST:
            results[0] = OutcomeUnknown("lost")
        return results

    async def call(self, operation: Operation[Any, Any], request: Any, seconds: float) -> Any:
        self.calls.append(operation.name)
        if operation is groups.JOIN:
            self.joined.append(request)
        if operation is groups.DESCRIBE_GROUP and self.describe_faults:
            raise self.describe_faults.popleft()
        if operation is groups.HEARTBEAT and self.forgotten:
            self.forgotten = False
            raise UnknownMember("forgotten")
        found = await super().call(operation, request, seconds)
        return structs.replace(found, settings=None) if operation is groups.JOIN and self.is_older else found


def faulty_client() -> tuple[AsyncLakelog, FaultyLeaseTransport]:
    transport = FaultyLeaseTransport()
    return AsyncLakelog(transport, CallRetryPolicy(limit_seconds=5.0, try_seconds=5.0)), transport
