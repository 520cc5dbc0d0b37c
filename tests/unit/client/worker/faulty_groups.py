"""Verbs of groups that fail on request, over a real engine in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lakelog.client._async.embedded import AsyncEmbeddedTransport
from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.client.embedded_groups import AsyncEmbeddedGroups, GroupVerbs
from lakelog.client.embedding.engine import EmbeddedSettings
from lakelog.client.embedding.portal import EngineHost
from lakelog.client.group_values import Consumed, ConsumeWish, JoinWish
from lakelog.client.retrying.backoff import CallRetryPolicy
from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable, UnknownMember
from lakelog.model.lease import Answered, LeaseAnswer
from lakelog.model.membership import Membership
from lakelog.wire.operations import Operation, groups

LOST, AWAY, HANGS = "done, but the answer is lost", "not done", "done, and the answer never comes"
FIRST_LOST = "done, but of the first it is not known"


class FaultyGroups(AsyncEmbeddedGroups):
    """Each consume and each answer takes its next fault; without one it works."""

    def __init__(self, verbs: Any, run: Any) -> None:
        super().__init__(verbs, run)
        self.consume_faults: deque[str] = deque()
        self.answer_faults: deque[str | LakelogError] = deque()
        self.describe_faults: deque[LakelogError] = deque()
        self.wishes: list[ConsumeWish] = []
        self.said: list[list[LeaseAnswer]] = []
        self.joined: list[JoinWish] = []
        self.gate: asyncio.Event | None = None
        self.forgotten = False

    async def consume(self, wish: ConsumeWish, seconds: float) -> Consumed:
        self.wishes.append(wish)
        if wish.answers:
            answered = await self.answer(wish.topic, wish.group, wish.owner, wish.answers, seconds)
            found = await self._consume(replace(wish, answers=(), wait_seconds=0.0), seconds)
            return replace(found, answered=answered)
        return await self._consume(wish, seconds)

    async def _consume(self, wish: ConsumeWish, seconds: float) -> Consumed:
        fault = self.consume_faults.popleft() if self.consume_faults else ""
        if fault == AWAY:
            raise Unavailable("away")
        found = await super().consume(wish, seconds)
        if fault and not found.leases:
            self.consume_faults.appendleft(fault)
            return found
        if fault == HANGS:
            await asyncio.sleep(600)
        if fault == LOST:
            raise OutcomeUnknown("lost")
        return found

    async def answer(
        self, topic: str, group: str, owner: str, answers: Sequence[LeaseAnswer], seconds: float
    ) -> list[Answered | LakelogError]:
        self.said.append(list(answers))
        if self.gate is not None and any(answer.verb == "ack" for answer in answers):
            await self.gate.wait()
        fault = self.answer_faults.popleft() if self.answer_faults else ""
        if fault == AWAY:
            raise Unavailable("away")
        if isinstance(fault, LakelogError):
            return [fault] * len(answers)
        results = await super().answer(topic, group, owner, answers, seconds)
        if fault == LOST:
            raise OutcomeUnknown("lost")
        if fault == FIRST_LOST:
            results[0] = OutcomeUnknown("lost")
        return results

    async def join(self, wish: JoinWish, seconds: float) -> Membership:
        self.joined.append(wish)
        return await super().join(wish, seconds)


class FaultyTransport(AsyncEmbeddedTransport):
    """The transport with these verbs."""

    def __init__(self) -> None:
        super().__init__(EngineHost(EmbeddedSettings(url="memory://"), "default", "default", own_thread=False))
        self.groups = self.faulty = FaultyGroups(GroupVerbs(self._session.enter), self._portal.run)

    async def call(self, operation: Operation[Any, Any], request: Any, seconds: float) -> Any:
        if operation is groups.DESCRIBE_GROUP and self.faulty.describe_faults:
            raise self.faulty.describe_faults.popleft()
        if operation is groups.HEARTBEAT and self.faulty.forgotten:
            self.faulty.forgotten = False
            raise UnknownMember("forgotten")
        return await super().call(operation, request, seconds)


def faulty_client() -> tuple[AsyncLakelog, FaultyGroups]:
    transport = FaultyTransport()
    return AsyncLakelog(transport, CallRetryPolicy(limit_seconds=5.0, try_seconds=5.0)), transport.faulty
