"""The operations about writes: many messages that become visible by one decision."""

from __future__ import annotations

from typing import Any

from lakelog.model.write import MAX_ATTEMPT_BYTES, MAX_WRITE_ID_BYTES, DecideRequest, Written
from lakelog.wire import frames
from lakelog.wire.operations.operation import PUBLISH, Media, Operation, Parameter, number, text

_TOPIC = "/v1/topics/{topic}"
_STAGE_QUERY = (
    Parameter("write_id", text(MAX_WRITE_ID_BYTES), "The write that the batches belong to.", required=True),
    Parameter(
        "attempt",
        text(MAX_ATTEMPT_BYTES),
        "The attempt that stages the batches; its name is unique within the write.",
        required=True,
    ),
    Parameter("incarnation", number(0, 2**62), "The incarnation from the topic's description.", required=True),
    Parameter(
        "epoch",
        number(0, 2**31 - 1),
        "The epoch from the topic's description, by which partitions were chosen.",
        required=True,
    ),
)

STAGE: Operation[Any, Any] = Operation(
    name="stage",
    method="POST",
    path=f"{_TOPIC}/staged",
    rights=PUBLISH,
    summary="Stage batches that stay invisible until a decision",
    media=Media(query=_STAGE_QUERY, body={frames.MEDIA_TYPE: ()}, replies={204: {}}),
    problems=(404, 409),
)
DECIDE = Operation(
    name="decide",
    method="POST",
    path=f"{_TOPIC}/writes",
    rights=PUBLISH,
    summary="Decide which staged batches of a write go into the log; the first decision is final",
    request=DecideRequest,
    reply=Written,
    example={"write_id": "nightly-2026-01-31", "attempts": ["a1", "a2"], "count": 2, "incarnation": 1, "epoch": 0},
    problems=(404, 409),
)
