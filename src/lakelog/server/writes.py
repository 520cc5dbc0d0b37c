"""The routes about writes: stage batches, decide. What these mean is for the engine to say."""

from __future__ import annotations

import msgspec

from lakelog.engine import Engine
from lakelog.errors import InvalidRequest
from lakelog.model.write import DecideWish, StagePiece, StageWish
from lakelog.server.bodies import answer_json, decoded_body
from lakelog.server.calls import Answer, Call, HttpRefusal
from lakelog.server.messages import MAX_EPOCH
from lakelog.server.metrics import Metrics
from lakelog.server.publishing import validated_frames
from lakelog.server.query import integer, known_query
from lakelog.wire.frames import MEDIA_TYPE
from lakelog.wire.write_shapes import Decide, WrittenShape

_DECIDE = msgspec.json.Decoder(Decide)
_QUERY = frozenset({"write_id", "attempt", "incarnation", "epoch"})


class WriteRoutes:
    """Handles calls about writes."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics

    async def stage(self, call: Call) -> Answer:
        if call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != MEDIA_TYPE.encode():
            raise HttpRefusal(415, f"Send staged batches as {MEDIA_TYPE}, and say so in Content-Type.")
        query = known_query(call, _QUERY)
        if missing := sorted(_QUERY - set(query)):
            raise InvalidRequest(f"The parameter `{missing[0]}` is missing.")
        wish = StageWish(
            write_id=query["write_id"],
            attempt=query["attempt"],
            incarnation=integer(query, "incarnation", 0, 0, 1 << 62),
            epoch=integer(query, "epoch", 0, 0, MAX_EPOCH),
        )
        body = await call.body()
        pieces = await self._engine.threads.run(len(body), _pieces, body)
        await self._engine.writes.stage(call.scope, call.parameters["topic"], wish, pieces)
        self._metrics.publish_bytes += len(body)
        return Answer(204, b"")

    async def decide(self, call: Call) -> Answer:
        shape: Decide = await decoded_body(call, _DECIDE)
        wish = msgspec.convert(shape, DecideWish, from_attributes=True)
        written = await self._engine.writes.decide(call.scope, call.parameters["topic"], wish)
        return answer_json(msgspec.convert(written, WrittenShape, from_attributes=True))


def _pieces(body: bytes) -> list[StagePiece]:
    """A frame's sequence is its number among those of its attempt and partition; its producer means nothing here."""
    return [
        StagePiece(partition=frame.partition, number=frame.sequence, count=frame.count, payload=data)
        for frame, data in validated_frames(body)
    ]
