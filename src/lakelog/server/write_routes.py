"""The part of the routing table that is about writes: many messages that become visible by one decision."""

from __future__ import annotations

from lakelog.model.token import Right
from lakelog.model.write import MAX_ATTEMPT_BYTES, MAX_WRITE_ID_BYTES
from lakelog.server.routing import JSON, Parameter, Route, rule
from lakelog.wire import frames
from lakelog.wire.write_shapes import Decide, WrittenShape

_PUBLISH = rule(Right.PUBLISH)
_TOPIC = "/v1/topics/{topic}"
_STAGE_QUERY = (
    Parameter(
        name="write_id",
        schema={"type": "string", "minLength": 1, "maxLength": MAX_WRITE_ID_BYTES},
        description="The write that a decision will be made about.",
        required=True,
    ),
    Parameter(
        name="attempt",
        schema={"type": "string", "minLength": 1, "maxLength": MAX_ATTEMPT_BYTES},
        description="Who stages; a name that nobody else uses in this write.",
        required=True,
    ),
    Parameter(
        name="incarnation",
        schema={"type": "integer", "minimum": 0, "maximum": 2**62},
        description="That of the topic's description.",
        required=True,
    ),
    Parameter(
        name="epoch",
        schema={"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        description="That of the topic's description, by which partitions were chosen.",
        required=True,
    ),
)

WRITES: tuple[Route, ...] = (
    Route(
        operation="stage",
        method="POST",
        path=f"{_TOPIC}/staged",
        rule=_PUBLISH,
        summary="Stage batches that nobody sees before a decision",
        query=_STAGE_QUERY,
        body={frames.MEDIA_TYPE: ()},
        answers={204: {}},
        problems=(404, 409),
    ),
    Route(
        operation="decide",
        method="POST",
        path=f"{_TOPIC}/writes",
        rule=_PUBLISH,
        summary="Decide which staged batches of a write go into the log; the first decision stands",
        body={JSON: (Decide,)},
        example={"write_id": "nightly-2026-01-31", "attempts": ["a1", "a2"], "count": 2, "incarnation": 1, "epoch": 0},
        answers={200: {JSON: (WrittenShape,)}},
        problems=(404, 409),
    ),
)
