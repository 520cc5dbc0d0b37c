"""The group operations over HTTP: their routes and bodies. `http` handles connections and errors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from lakelog.client import group_shaping as shaping
from lakelog.client._async.connection import HttpResponse as HttpAnswer
from lakelog.client.group_values import (
    Consumed,
    ConsumeWish,
    DeadLetter,
    DeadPage,
    DeadWish,
    JoinWish,
    Redriven,
    RedriveWish,
)
from lakelog.client.replies import read_reply
from lakelog.errors import InvalidBatch, InvalidRequest, LakelogError, OutcomeUnknown
from lakelog.model.lease import Answered, LeaseAnswer
from lakelog.model.membership import Membership
from lakelog.wire import consume_shapes, group_shapes
from lakelog.wire.leases import MEDIA_TYPE, read_leases

_UNKNOWN_ANSWERS = "unknown field `answers`"
_APART_SECONDS = 60.0
"""After this time, a server may have been replaced by a version that accepts answers with a consume."""


class AsyncCaller(Protocol):
    """The parts of `AsyncHttpTransport` that this module uses."""

    async def get(self, target: str, seconds: float) -> HttpAnswer: ...

    async def send(
        self, method: str, target: str, seconds: float, body: bytes, accept: str, media: str = "application/json"
    ) -> HttpAnswer: ...


class AsyncHttpGroups:
    """The `AsyncGroupTransport` over HTTP."""

    def __init__(self, caller: AsyncCaller) -> None:
        self._caller = caller
        self._apart_until = 0.0
        """Until this time, answers are sent in separate calls, because a server refused a consume with answers."""

    async def consume(self, wish: ConsumeWish, seconds: float) -> Consumed:
        if not wish.answers:
            return await self._consume(wish, seconds)
        wish = replace(wish, wait_seconds=0.0)
        if time.monotonic() < self._apart_until:
            return await self._answer_and_consume(wish, seconds)
        try:
            found = await self._consume(wish, seconds)
        except InvalidRequest as refusal:
            if _UNKNOWN_ANSWERS not in refusal.detail:
                raise
            # A server of an older version, or the home that it passed the call on to. Nothing was done.
            self._apart_until = time.monotonic() + _APART_SECONDS
            return await self._answer_and_consume(wish, seconds)
        if found.head.answered is None:
            return replace(found, answered=await self._answer_of(wish, seconds))
        if len(found.answered) != len(wish.answers):
            raise OutcomeUnknown(f"The response has {len(found.answered)} outcomes for {len(wish.answers)}.")
        return found

    async def _answer_and_consume(self, wish: ConsumeWish, seconds: float) -> Consumed:
        """Answer and consume in two calls, because this server cannot do both in one."""
        answered = await self._answer_of(wish, seconds)
        found = await self._consume(replace(wish, answers=()), seconds)
        return replace(found, answered=answered)

    async def _answer_of(self, wish: ConsumeWish, seconds: float) -> list[Answered | LakelogError]:
        return await self.answer(wish.topic, wish.group, wish.owner, wish.answers, seconds)

    async def _consume(self, wish: ConsumeWish, seconds: float) -> Consumed:
        # Not in the body: a server of an older version refuses an unknown field, and ignores an unknown parameter.
        target = "/v1/consume?repeat=true" if wish.repeat else "/v1/consume"
        answer = await self._post(target, seconds, shaping.consume_shape(wish), MEDIA_TYPE)
        try:
            head, payloads = read_leases(answer.body)
        except InvalidBatch as exc:
            raise OutcomeUnknown(f"The response cannot be read: {exc}. The server may run another version.") from exc
        answered = [shaping.answered_of(result) for result in head.answered or ()]
        return Consumed(head=head, payloads=payloads, answered=answered)

    async def answer(
        self, topic: str, group: str, owner: str, answers: Sequence[LeaseAnswer], seconds: float
    ) -> list[Answered | LakelogError]:
        body = consume_shapes.Answers(owner=owner, answers=shaping.compact(answers))
        answer = await self._post(f"/v1/topics/{topic}/groups/{group}/answers", seconds, body)
        results = read_reply(answer.body, consume_shapes.AnswersAnswer).results
        if len(results) != len(answers):
            raise OutcomeUnknown(f"The response has {len(results)} results for {len(answers)}.")
        return [shaping.answered_of(result) for result in results]

    async def join(self, wish: JoinWish, seconds: float) -> Membership:
        answer = await self._post(f"/v1/groups/{wish.group}/join", seconds, shaping.join_shape(wish))
        return read_reply(answer.body, Membership)

    async def list_dead(self, group: str, wish: DeadWish, seconds: float) -> DeadPage:
        target = _with_query(
            f"/v1/groups/{group}/dead-letters",
            topic=wish.topic,
            partition=wish.partition,
            where=wish.where,
            state=wish.state,
            after=wish.after,
            limit=wish.limit,
        )
        page = read_reply((await self._caller.get(target, seconds)).body, shaping.DeadLettersReply)
        return DeadPage(letters=[shaping.dead_of(letter) for letter in page.dead_letters], next=page.next)

    async def find_dead(self, group: str, message_id: str, seconds: float) -> DeadLetter:
        answer = await self._caller.get(f"/v1/groups/{group}/dead-letters/{quote(message_id, safe='')}", seconds)
        return shaping.dead_of(read_reply(answer.body, shaping.DeadLetterReply))

    async def redrive(self, group: str, wish: RedriveWish, seconds: float) -> Redriven:
        answer = await self._post(f"/v1/groups/{group}/dead-letters/redrive", seconds, shaping.redrive_shape(wish))
        return shaping.redriven_of(read_reply(answer.body, group_shapes.RedrivenShape))

    async def discard(self, group: str, wish: DeadWish, seconds: float) -> int:
        body = group_shapes.DiscardDead(
            message_ids=None if wish.message_ids is None else [*wish.message_ids],
            topic=wish.topic,
            where=wish.where,
            limit=wish.limit,
        )
        answer = await self._post(f"/v1/groups/{group}/dead-letters/discard", seconds, body)
        return read_reply(answer.body, group_shapes.Discarded).discarded

    async def _post(self, target: str, seconds: float, body: Any, accept: str = "application/json") -> HttpAnswer:
        return await self._caller.send("POST", target, seconds, msgspec.json.encode(body), accept)


_JSON = "application/json"


def _with_query(target: str, **query: str | int | None) -> str:
    stated = {name: text for name, text in query.items() if text is not None}
    return f"{target}?{urlencode(stated)}" if stated else target
