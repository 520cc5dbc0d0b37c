"""The verbs about groups over HTTP: which route each is, and in which shapes. Connections and errors are `http`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from lakelog.client import group_shaping as shaping
from lakelog.client._async.connection import Answer as HttpAnswer
from lakelog.client.group_values import (
    Answer,
    Answered,
    CommitWish,
    Consumed,
    ConsumeWish,
    DeadLetter,
    DeadPage,
    DeadWish,
    GroupDescription,
    GroupInfo,
    JoinWish,
    Membership,
    PartitionProgress,
    Position,
    Redriven,
    RedriveWish,
    Sought,
    TopicStats,
)
from lakelog.client.replies import read_reply
from lakelog.errors import InvalidBatch, LakelogError, OutcomeUnknown
from lakelog.model.group import GroupWish, Start
from lakelog.wire import consume_shapes, group_shapes
from lakelog.wire.leases import MEDIA_TYPE, read_leases


class AsyncCaller(Protocol):
    """What `AsyncHttpTransport` does for this module."""

    async def get(self, target: str, seconds: float) -> HttpAnswer: ...

    async def send(
        self, method: str, target: str, seconds: float, body: bytes, accept: str, media: str = "application/json"
    ) -> HttpAnswer: ...


class AsyncHttpGroups:
    """The `AsyncGroupTransport` over HTTP."""

    def __init__(self, caller: AsyncCaller) -> None:
        self._caller = caller

    async def consume(self, wish: ConsumeWish, seconds: float) -> Consumed:
        answer = await self._post("/v1/consume", seconds, shaping.consume_shape(wish), MEDIA_TYPE)
        try:
            head, payloads = read_leases(answer.body)
        except InvalidBatch as exc:
            raise OutcomeUnknown(f"The answer cannot be read: {exc}. Is the server of another version?") from exc
        return Consumed(head=head, payloads=payloads)

    async def answer(
        self, topic: str, group: str, owner: str, answers: Sequence[Answer], seconds: float
    ) -> list[Answered | LakelogError]:
        body = consume_shapes.Answers(owner=owner, answers=[shaping.answer_shape(answer) for answer in answers])
        answer = await self._post(f"/v1/topics/{topic}/groups/{group}/answers", seconds, body)
        results = read_reply(answer.body, consume_shapes.AnswersAnswer).results
        if len(results) != len(answers):
            raise OutcomeUnknown(f"The answer has {len(results)} results for {len(answers)}.")
        return [shaping.answered_of(result) for result in results]

    async def join(self, wish: JoinWish, seconds: float) -> Membership:
        answer = await self._post(f"/v1/groups/{wish.group}/join", seconds, shaping.join_shape(wish))
        return shaping.membership_of(read_reply(answer.body, group_shapes.MembershipShape))

    async def heartbeat(self, group: str, member_id: str, generation: int, seconds: float) -> Membership:
        body = group_shapes.Heartbeat(member_id=member_id, generation=generation)
        answer = await self._post(f"/v1/groups/{group}/heartbeat", seconds, body)
        return shaping.membership_of(read_reply(answer.body, group_shapes.MembershipShape))

    async def leave(self, group: str, member_id: str, seconds: float) -> None:
        await self._post(f"/v1/groups/{group}/leave", seconds, group_shapes.Leave(member_id=member_id))

    async def list_groups(self, after: str, seconds: float) -> Sequence[GroupInfo]:
        answer = await self._caller.get(_with_query("/v1/groups", after=after or None), seconds)
        return [shaping.group_of(group) for group in read_reply(answer.body, group_shapes.GroupList).groups]

    async def describe(self, group: str, seconds: float) -> GroupDescription:
        answer = await self._caller.get(f"/v1/groups/{group}", seconds)
        held = await self._caller.get(f"/v1/groups/{group}/leases", seconds)
        leases = read_reply(held.body, group_shapes.Held).leases
        return shaping.description_of(read_reply(answer.body, group_shapes.GroupDescribed), leases)

    async def alter(self, group: str, wish: GroupWish, seconds: float) -> GroupInfo:
        body = msgspec.json.encode(shaping.alter_shape(wish))
        answer = await self._caller.send("PATCH", f"/v1/groups/{group}", seconds, body, _JSON)
        return shaping.group_of(read_reply(answer.body, group_shapes.GroupShape))

    async def delete(self, group: str, seconds: float) -> None:
        await self._caller.send("DELETE", f"/v1/groups/{group}", seconds, b"", _JSON)

    async def pause(self, group: str | None, topic: str | None, seconds: float) -> None:
        await self._post(_switch(group, topic, "pause"), seconds, group_shapes.Pause(topic=group and topic))

    async def resume(self, group: str | None, topic: str | None, seconds: float) -> None:
        await self._post(_switch(group, topic, "resume"), seconds, group_shapes.Pause(topic=group and topic))

    async def lag(self, group: str, topic: str | None, seconds: float) -> Sequence[PartitionProgress]:
        answer = await self._caller.get(_with_query(f"/v1/groups/{group}/lag", topic=topic), seconds)
        return [shaping.progress_of(each) for each in read_reply(answer.body, group_shapes.Lag).partitions]

    async def stats(self, topic: str, seconds: float) -> TopicStats:
        answer = await self._caller.get(f"/v1/topics/{topic}/stats", seconds)
        return shaping.stats_of(read_reply(answer.body, group_shapes.TopicStats))

    async def seek(
        self, group: str, topic: str, to: Start | str, partition: int | None, dry_run: bool, seconds: float
    ) -> Sequence[Sought]:
        body = shaping.seek_shape(topic, to, partition, dry_run)
        answer = await self._post(f"/v1/groups/{group}/seek", seconds, body)
        return shaping.sought_of(read_reply(answer.body, group_shapes.Sought))

    async def positions(self, group: str, topic: str, seconds: float) -> Mapping[int, Position]:
        answer = await self._caller.get(_with_query(f"/v1/groups/{group}/positions", topic=topic), seconds)
        return shaping.positions_of(read_reply(answer.body, group_shapes.Positions))

    async def commit(self, group: str, wish: CommitWish, seconds: float) -> None:
        await self._post(f"/v1/groups/{group}/positions", seconds, shaping.commit_shape(wish))

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


def _switch(group: str | None, topic: str | None, verb: str) -> str:
    return f"/v1/groups/{group}/{verb}" if group is not None else f"/v1/topics/{topic}/{verb}"
