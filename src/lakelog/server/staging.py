"""The handler that stages batches of a write."""

from __future__ import annotations

from lakelog.engine import Engine
from lakelog.errors import InvalidRequest
from lakelog.model.write import StageOptions, StagePiece
from lakelog.server.calls import Call, HttpError, Response
from lakelog.server.messages import MAX_EPOCH
from lakelog.server.metrics import Metrics
from lakelog.server.publishing import validated_frames
from lakelog.server.query import integer, known_query
from lakelog.wire.frames import MEDIA_TYPE

_QUERY = frozenset({"write_id", "attempt", "incarnation", "epoch"})


class Staging:
    """Handles calls that stage batches."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics

    async def stage(self, call: Call) -> Response:
        """Store the batches of the body."""
        if call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != MEDIA_TYPE.encode():
            raise HttpError(415, f"Send staged batches as {MEDIA_TYPE}, and say so in Content-Type.")
        query = known_query(call, _QUERY)
        if missing := sorted(_QUERY - set(query)):
            raise InvalidRequest(f"The parameter `{missing[0]}` is missing.")
        options = StageOptions(
            write_id=query["write_id"],
            attempt=query["attempt"],
            incarnation=integer(query, "incarnation", 0, 0, 1 << 62),
            epoch=integer(query, "epoch", 0, 0, MAX_EPOCH),
        )
        body = await call.body()
        pieces = await self._engine.threads.run(len(body), _pieces, body)
        await self._engine.writes.stage(call.scope, call.parameters["topic"], options, pieces)
        self._metrics.publish_bytes += len(body)
        return Response(204, b"")


def _pieces(body: bytes) -> list[StagePiece]:
    """Return the batches. A frame's sequence is its number within its attempt and partition; its producer is unused."""
    return [
        StagePiece(partition=frame.partition, number=frame.sequence, count=frame.count, payload=data)
        for frame, data in validated_frames(body)
    ]
