"""The verbs about plans and segments over HTTP. Connections and errors are `http`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from lakelog.client._async.group_http import AsyncCaller
from lakelog.client.lake_values import Plan, PlanWish, Registered, Segment, TierRange, TierWish, Watermarks
from lakelog.client.replies import read_reply, same_fields
from lakelog.wire import lake_shapes as shapes

Shape = TypeVar("Shape")
_JSON = "application/json"


class AsyncHttpLake:
    """The `AsyncLakeTransport` over HTTP."""

    def __init__(self, caller: AsyncCaller) -> None:
        self._caller = caller

    async def plan(self, topic: str, wish: PlanWish, seconds: float) -> Plan:
        body = same_fields(wish, shapes.PlanAsk)
        return same_fields(await self._post(f"/v1/topics/{topic}/plan", seconds, body, shapes.PlanShape), Plan)

    async def watermarks(
        self, topic: str, beyond: Mapping[int, int], wait_seconds: float, seconds: float
    ) -> Watermarks:
        body = shapes.WatermarksAsk(beyond=dict(beyond), wait_ms=int(wait_seconds * 1000))
        target = f"/v1/topics/{topic}/watermarks"
        return same_fields(await self._post(target, seconds, body, shapes.WatermarksShape), Watermarks)

    async def tierable(self, topic: str, wish: TierWish, seconds: float) -> list[TierRange]:
        body = shapes.TierAsk(
            segment_bytes=wish.segment_bytes,
            min_bytes=wish.min_bytes,
            min_age_ms=int(wish.min_age_seconds * 1000),
        )
        found = await self._post(f"/v1/topics/{topic}/segments/tierable", seconds, body, shapes.Tierable)
        return [same_fields(each, TierRange) for each in found.ranges]

    async def register(self, topic: str, segments: Sequence[Segment], seconds: float) -> list[Registered]:
        target = f"/v1/topics/{topic}/segments"
        found = await self._post(target, seconds, _segments(segments), shapes.RegisterAnswer)
        return [same_fields(each, Registered) for each in found.results]

    async def verified(self, topic: str, segments: Sequence[Segment], seconds: float) -> list[bool]:
        target = f"/v1/topics/{topic}/segments/verified"
        return (await self._post(target, seconds, _segments(segments), shapes.Settled)).results

    async def unregister(self, topic: str, segments: Sequence[Segment], seconds: float) -> list[bool]:
        target = f"/v1/topics/{topic}/segments/unregister"
        return (await self._post(target, seconds, _segments(segments), shapes.Settled)).results

    async def unverified(self, topic: str, seconds: float) -> list[Segment]:
        answer = await self._caller.get(f"/v1/topics/{topic}/segments/unverified", seconds)
        return [same_fields(each, Segment) for each in read_reply(answer.body, shapes.SegmentList).segments]

    async def look(self, paths: Sequence[str], min_age_seconds: float, seconds: float) -> list[str]:
        body = shapes.LookAsk(paths=[*paths], min_age_ms=int(min_age_seconds * 1000))
        return (await self._post("/v1/sweep/look", seconds, body, shapes.LookAnswer)).paths

    async def swept(self, paths: Sequence[str], seconds: float) -> None:
        body = msgspec.json.encode(shapes.Swept(paths=[*paths]))
        await self._caller.send("POST", "/v1/sweep/swept", seconds, body, _JSON)

    async def _post(self, target: str, seconds: float, body: object, kind: type[Shape]) -> Shape:
        answer = await self._caller.send("POST", target, seconds, msgspec.json.encode(body), _JSON)
        return read_reply(answer.body, kind)


def _segments(segments: Sequence[Segment]) -> shapes.Segments:
    return shapes.Segments(segments=[same_fields(segment, shapes.SegmentShape) for segment in segments])
