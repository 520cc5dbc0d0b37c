"""The routes about groups: list, describe, lag, leases, alter, delete, seek, skip, pause, positions."""

from __future__ import annotations

import msgspec

from lakelog.engine import Engine
from lakelog.errors import InvalidRequest
from lakelog.model.group import Start
from lakelog.model.names import check_name
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest
from lakelog.model.progress import GroupLag, GroupList, GroupPage, LeaseList
from lakelog.model.seek import GroupPositions, SeekResult
from lakelog.server.audit import given
from lakelog.server.bodies import answer_json, decoded_body, json_body, optional_body
from lakelog.server.calls import Answer, Call
from lakelog.server.homes import Homes
from lakelog.server.messages import decode_json, to_utc
from lakelog.server.query import integer, known_query
from lakelog.server.wishes import settings_wish
from lakelog.wire import consume_shapes
from lakelog.wire import group_shapes as shapes

_ALTER = msgspec.json.Decoder(consume_shapes.SettingsShape)
_PAUSE = msgspec.json.Decoder(shapes.Pause)
_SEEK = msgspec.json.Decoder(shapes.Seek)
_SKIP = msgspec.json.Decoder(shapes.Skip)
_COMMIT = msgspec.json.Decoder(shapes.Commit)


class GroupRoutes:
    """Handles calls about groups."""

    def __init__(self, engine: Engine, homes: Homes | None = None) -> None:
        self._engine = engine
        self._homes = homes

    async def list(self, call: Call) -> Answer:
        query = known_query(call, {"after", "limit"})
        limit = integer(query, "limit", 1000, 1, 1000)
        after = check_name("group", query["after"]) if "after" in query else ""
        groups = await self._engine.groups.list(call.scope, after=after, limit=limit)
        following = groups[-1].name if len(groups) == limit else None
        return answer_json(GroupPage(groups=groups, next=following))

    async def describe(self, call: Call) -> Answer:
        known_query(call, frozenset())
        return answer_json(await self._engine.groups.describe(call.scope, call.parameters["group"]))

    async def lag(self, call: Call) -> Answer:
        group = call.parameters["group"]
        progress = await self._engine.groups.lag(call.scope, group, _topic(call))
        return answer_json(GroupLag(group_id=group, lag=sum(each.lag for each in progress), partitions=progress))

    async def leases(self, call: Call) -> Answer:
        group = call.parameters["group"]
        progress = await self._engine.groups.lag(call.scope, group, _topic(call))
        return answer_json(LeaseList(group_id=group, leases=[lease for each in progress for lease in each.leases]))

    async def alter(self, call: Call) -> Answer:
        shape: consume_shapes.SettingsShape = await decoded_body(call, _ALTER)
        call.note(**given(shape))
        wish = settings_wish(shape)
        return answer_json((await self._engine.groups.alter(call.scope, call.parameters["group"], wish)).info())

    async def delete(self, call: Call) -> Answer:
        await self._engine.groups.delete(call.scope, call.parameters["group"])
        return Answer(204, b"")

    async def pause(self, call: Call) -> Answer:
        shape: shapes.Pause = await optional_body(call, _PAUSE)
        call.note(**given(shape))
        group = await self._engine.groups.pause(call.scope, call.parameters["group"], shape.topic)
        return answer_json(group.info())

    async def resume(self, call: Call) -> Answer:
        shape: shapes.Pause = await optional_body(call, _PAUSE)
        call.note(**given(shape))
        group = await self._engine.groups.resume(call.scope, call.parameters["group"], shape.topic)
        return answer_json(group.info())

    async def pause_topic(self, call: Call) -> Answer:
        groups = await self._engine.groups.pause_topic(call.scope, call.parameters["topic"])
        return answer_json(GroupList(groups=[group.info() for group in groups]))

    async def resume_topic(self, call: Call) -> Answer:
        groups = await self._engine.groups.resume_topic(call.scope, call.parameters["topic"])
        return answer_json(GroupList(groups=[group.info() for group in groups]))

    async def stats(self, call: Call) -> Answer:
        known_query(call, frozenset())
        return answer_json(await self._engine.groups.stats(call.scope, call.parameters["topic"]))

    async def seek(self, call: Call) -> Answer:
        shape: shapes.Seek = await decoded_body(call, _SEEK)
        call.parameters["topic"] = shape.topic
        call.note(**given(shape, "topic"))
        moved = await self._engine.groups.seek(
            call.scope,
            call.parameters["group"],
            shape.topic,
            _target(shape),
            partition=shape.partition,
            dry_run=shape.dry_run,
        )
        return answer_json(SeekResult(dry_run=shape.dry_run, partitions=moved))

    async def skip(self, call: Call) -> Answer:
        body = await json_body(call)
        shape: shapes.Skip = decode_json(_SKIP, body)
        group = call.parameters["group"]
        # At the home of the group and topic, whose cached progress would else be out of date.
        if self._homes is not None and (home := self._homes.elsewhere(call, group, shape.topic)) is not None:
            forwarded = await self._homes.forward(call, body, home)
            if forwarded is not None:
                return forwarded
        call.parameters["topic"] = shape.topic
        call.note(**given(shape, "topic"))
        skipped = await self._engine.groups.skip(
            call.scope, group, shape.topic, shape.partition, shape.offset, dry_run=shape.dry_run
        )
        call.note(messages=str(skipped.messages))
        return answer_json(skipped)

    async def positions(self, call: Call) -> Answer:
        topic = _topic(call)
        if topic is None:
            raise InvalidRequest("Say which `topic` is meant.")
        found = await self._engine.groups.positions(call.scope, call.parameters["group"], topic)
        return answer_json(GroupPositions(topic=topic, positions=found))

    async def commit(self, call: Call) -> Answer:
        shape: shapes.Commit = await decoded_body(call, _COMMIT)
        positions = {each.partition: each.offset for each in shape.positions}
        if len(positions) < len(shape.positions):
            raise InvalidRequest("`positions` names a partition twice.")
        await self._engine.groups.commit(
            call.scope,
            call.parameters["group"],
            shape.topic,
            positions,
            member_id=shape.member_id,
            generation=shape.generation,
            epoch=shape.epoch,
        )
        return Answer(204, b"")


def _topic(call: Call) -> str | None:
    query = known_query(call, {"topic"})
    return check_name("topic", query["topic"]) if "topic" in query else None


def _target(shape: shapes.Seek) -> Start | str:
    given: list[Start | str] = []
    if shape.position is not None:
        given.append(Earliest() if shape.position == "earliest" else Latest())
    if shape.offset is not None:
        given.append(AtOffset(shape.offset))
    if shape.timestamp is not None:
        given.append(AtTime(to_utc("timestamp", shape.timestamp)))
    if shape.message_id is not None:
        given.append(shape.message_id)
    if len(given) != 1:
        raise InvalidRequest("Give one of `position` (earliest or latest), `offset`, `timestamp` and `message_id`.")
    return given[0]
