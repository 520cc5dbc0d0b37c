"""The verbs about groups over HTTP: which route each is, and in which shapes. Connections and errors are `http`'s."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from lakelog.client import group_shaping as shaping
from lakelog.client._async.connection import HttpResponse as HttpAnswer
from lakelog.client.group_values import DeadWish, RedriveWish
from lakelog.client.replies import read_reply
from lakelog.model.dead_letters import DeadLetter, DeadLetterPage, Redriven
from lakelog.wire import group_shapes


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

    async def list_dead(self, group: str, wish: DeadWish, seconds: float) -> DeadLetterPage:
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
        return DeadLetterPage(letters=[shaping.dead_of(letter) for letter in page.dead_letters], next=page.next)

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
