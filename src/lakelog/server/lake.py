"""The routes about plans, watermarks and segments. The engine decides."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from lakelog.engine import Engine
from lakelog.model.lake import PlanWish, TierWish, Watermarks
from lakelog.model.segment import Segment
from lakelog.server.bodies import answer_json, decoded_body, optional_body
from lakelog.server.calls import Answer, Call
from lakelog.server.drain import Drain
from lakelog.server.messages import to_utc
from lakelog.server.query import known_query
from lakelog.server.waiting import unless_ended
from lakelog.wire import lake_shapes as shapes

_PLAN = msgspec.json.Decoder(shapes.PlanAsk)
_WATERMARKS = msgspec.json.Decoder(shapes.WatermarksAsk)
_TIER = msgspec.json.Decoder(shapes.TierAsk)
_SEGMENTS = msgspec.json.Decoder(shapes.Segments)
_LOOK = msgspec.json.Decoder(shapes.LookAsk)
_SWEPT = msgspec.json.Decoder(shapes.Swept)


class LakeRoutes:
    """Handles calls about where messages are."""

    def __init__(self, engine: Engine, drain: Drain) -> None:
        self._lake = engine.lake
        self._drain = drain

    async def plan(self, call: Call) -> Answer:
        ask: shapes.PlanAsk = await optional_body(call, _PLAN)
        wish = PlanWish(
            starts=ask.starts,
            ends=ask.ends,
            since=None if ask.since is None else to_utc("since", ask.since),
            until=None if ask.until is None else to_utc("until", ask.until),
            incarnation=ask.incarnation,
        )
        plan = await self._lake.plan(call.scope, call.parameters["topic"], wish)
        return answer_json(msgspec.convert(plan, shapes.PlanShape, from_attributes=True))

    async def watermarks(self, call: Call) -> Answer:
        ask: shapes.WatermarksAsk = await optional_body(call, _WATERMARKS)
        topic, wait = call.parameters["topic"], ask.wait_ms / 1000
        found: Watermarks | None = None
        if wait and not self._drain.begun:
            call.waited = True
            later = self._lake.watermarks(call.scope, topic, ask.beyond, wait)
            found = await unless_ended(call, self._drain, later)
        if found is None:
            found = await self._lake.watermarks(call.scope, topic, ask.beyond)
        return answer_json(msgspec.convert(found, shapes.WatermarksShape, from_attributes=True))

    async def tierable(self, call: Call) -> Answer:
        ask: shapes.TierAsk = await optional_body(call, _TIER)
        wish = TierWish(
            segment_bytes=ask.segment_bytes,
            min_bytes=ask.min_bytes,
            min_age_seconds=ask.min_age_ms / 1000,
        )
        found = await self._lake.tierable(call.scope, call.parameters["topic"], wish)
        ranges = [msgspec.convert(each, shapes.TierRangeShape, from_attributes=True) for each in found]
        return answer_json(shapes.Tierable(ranges=ranges))

    async def register(self, call: Call) -> Answer:
        found = await self._lake.register(call.scope, call.parameters["topic"], await _segments(call))
        results = [shapes.RegisteredShape(status=each.status.value, reason=each.reason) for each in found]
        return answer_json(shapes.RegisterAnswer(results=results))

    async def verified(self, call: Call) -> Answer:
        found = await self._lake.verified(call.scope, call.parameters["topic"], await _segments(call))
        return answer_json(shapes.Settled(results=found))

    async def unregister(self, call: Call) -> Answer:
        found = await self._lake.unregister(call.scope, call.parameters["topic"], await _segments(call))
        return answer_json(shapes.Settled(results=found))

    async def unverified(self, call: Call) -> Answer:
        known_query(call, frozenset())
        found = await self._lake.unverified(call.scope, call.parameters["topic"])
        segments = [msgspec.convert(each, shapes.SegmentShape, from_attributes=True) for each in found]
        return answer_json(shapes.SegmentList(segments=segments))

    async def look(self, call: Call) -> Answer:
        ask: shapes.LookAsk = await decoded_body(call, _LOOK)
        age = timedelta(milliseconds=ask.min_age_ms)
        found = await self._lake.look(call.scope, ask.paths, age)
        return answer_json(shapes.LookAnswer(paths=[path for path in ask.paths if path in found]))

    async def swept(self, call: Call) -> Answer:
        ask: shapes.Swept = await decoded_body(call, _SWEPT)
        call.note(files=str(len(ask.paths)))
        await self._lake.swept(call.scope, ask.paths)
        return Answer(204, b"")


async def _segments(call: Call) -> list[Segment]:
    shape: shapes.Segments = await decoded_body(call, _SEGMENTS)
    for each in shape.segments:
        to_utc("first_at", each.first_at)
        to_utc("last_at", each.last_at)
    call.note(segments=str(len(shape.segments)))
    return [msgspec.convert(each, Segment, from_attributes=True) for each in shape.segments]
