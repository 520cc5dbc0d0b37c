"""Consume and answers over HTTP: the bodies, and servers of older versions. Connections and errors are `http`'s."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import msgspec
from msgspec import structs

from lakelog.client._async.connection import HttpResponse
from lakelog.client.connecting.home_servers import HomeKey
from lakelog.client.replies import read_reply
from lakelog.client.values import Consumed
from lakelog.errors import InvalidBatch, InvalidRequest, LakelogError, OutcomeUnknown
from lakelog.model.lease import Answered, AnswersRequest, ConsumeRequest, LeaseAnswer
from lakelog.wire.consume_shapes import AnswersReply
from lakelog.wire.leases import MEDIA_TYPE, read_leases
from lakelog.wire.operations.consuming import ANSWERS
from lakelog.wire.problems import error_of

_UNKNOWN_ANSWERS = "unknown field `answers`"
_APART_SECONDS = 60.0
"""After this time, a server may have been replaced by a version that accepts answers with a consume."""
_JSON = "application/json"


class AsyncCaller(Protocol):
    """The parts of `AsyncHttpTransport` that this module uses."""

    async def send(self, target: str, seconds: float, body: bytes, accept: str, key: HomeKey) -> HttpResponse: ...


class AsyncHttpLeases:
    """Consume and answers of `AsyncHttpTransport`."""

    def __init__(self, caller: AsyncCaller) -> None:
        self._caller = caller
        self._apart_until = 0.0
        """Until this time, answers are sent in separate calls, because a server refused a consume with answers."""

    async def consume(self, request: ConsumeRequest, seconds: float, repeat: bool = False) -> Consumed:
        """Lease messages, and send the answers of the request."""
        if not request.answers:
            return await self._consume(request, seconds, repeat)
        if time.monotonic() < self._apart_until:
            return await self._answer_and_consume(request, seconds, repeat)
        try:
            found = await self._consume(request, seconds, repeat)
        except InvalidRequest as refusal:
            if _UNKNOWN_ANSWERS not in refusal.detail:
                raise
            # A server of an older version, or the home that it passed the call on to. Nothing was done.
            self._apart_until = time.monotonic() + _APART_SECONDS
            return await self._answer_and_consume(request, seconds, repeat)
        if found.head.answered is None:
            return replace(found, answered=await self._answer_of(request, seconds))
        if len(found.answered) != len(request.answers):
            raise OutcomeUnknown(f"The answer has {len(found.answered)} outcomes for {len(request.answers)}.")
        return found

    async def answer(self, request: AnswersRequest, seconds: float) -> list[Answered | LakelogError]:
        """Send answers. Return one result for each, in order."""
        body = msgspec.json.encode(ANSWERS.without_path(structs.replace(request, answers=_compact(request.answers))))
        answer = await self._caller.send(ANSWERS.target(request), seconds, body, _JSON, _key(request))
        results = read_reply(answer.body, AnswersReply).results
        if len(results) != len(request.answers):
            raise OutcomeUnknown(f"The answer has {len(results)} results for {len(request.answers)}.")
        return [result.outcome() for result in results]

    async def _answer_and_consume(self, request: ConsumeRequest, seconds: float, repeat: bool) -> Consumed:
        """Send the answers in a call of their own: this server cannot do both in one."""
        answered = await self._answer_of(request, seconds)
        found = await self._consume(structs.replace(request, answers=(), wait_ms=0), seconds, repeat)
        return replace(found, answered=answered)

    async def _answer_of(self, request: ConsumeRequest, seconds: float) -> list[Answered | LakelogError]:
        return await self.answer(
            AnswersRequest(topic=request.topic, group=request.group, owner=request.owner, answers=request.answers),
            seconds,
        )

    async def _consume(self, request: ConsumeRequest, seconds: float, repeat: bool) -> Consumed:
        if request.answers:
            # The outcomes of answers do not wait for messages, whatever the version of the server.
            request = structs.replace(request, answers=_compact(request.answers), wait_ms=0)
        # Not in the body: a server of an older version refuses an unknown field, and ignores an unknown parameter.
        target = "/v1/consume?repeat=true" if repeat else "/v1/consume"
        body = msgspec.json.encode(request)
        answer = await self._caller.send(target, seconds, body, MEDIA_TYPE, _key(request))
        try:
            head, payloads = read_leases(answer.body)
        except InvalidBatch as exc:
            raise OutcomeUnknown(f"The response cannot be read: {exc}. The server may run another version.") from exc
        answered = [result.outcome() for result in head.answered or ()]
        refusal = None if head.error is None else error_of(head.error)
        return Consumed(head=head, payloads=payloads, answered=answered, refusal=refusal)


def _key(request: ConsumeRequest | AnswersRequest) -> HomeKey:
    return request.topic, request.group, request.owner


def _compact(answers: Sequence[LeaseAnswer]) -> tuple[LeaseAnswer, ...]:
    return tuple(each.compact() for each in answers)
