"""The operations that publish and fetch messages. They carry bytes, and have handlers of their own."""

from __future__ import annotations

from typing import Any

from lakelog.wire import frames, shapes
from lakelog.wire.operations.operation import JSON, PUBLISH, READ, Media, Operation, Parameter

_PUBLISHED = (shapes.PublishAnswer, shapes.FramesAnswer)
_TOPIC = "/v1/topics/{topic}"
_FETCH_QUERY = (
    Parameter(
        name="offset",
        schema={"anyOf": [{"type": "integer", "minimum": 0, "maximum": 2**62}, {"enum": ["earliest", "latest"]}]},
        description="Begin at an offset, or at either end. Give `offset`, `time` or `last`, or none for earliest.",
    ),
    Parameter(
        name="time",
        schema={"type": "string", "format": "date-time"},
        description="Begin with the first message appended at this time or later.",
    ),
    Parameter(
        name="last",
        schema={"type": "integer", "minimum": 0, "maximum": 2**62},
        description="Begin this many messages before the high watermark.",
    ),
    Parameter(
        name="limit",
        schema={"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1000},
        description="The most messages to return.",
    ),
    Parameter(
        name="max_bytes",
        schema={"type": "integer", "minimum": 1, "maximum": 16 << 20, "default": 16 << 20},
        description="Stop after the batch that reaches this many stored bytes.",
    ),
    Parameter(
        name="wait_ms",
        schema={"type": "integer", "minimum": 0, "maximum": 30_000, "default": 0},
        description="How long to wait while there is nothing.",
    ),
)
MESSAGES: tuple[Operation[Any, Any], ...] = (
    Operation(
        name="publish",
        method="POST",
        path=f"{_TOPIC}/messages",
        rights=PUBLISH,
        summary="Publish messages",
        example={
            "messages": [
                {
                    "key": "acct_1",
                    "value": {"total": 12},
                    "headers": {"source": "checkout"},
                    "idempotency_key": "order-created:123",
                }
            ]
        },
        problems=(404, 409),
        media=Media(
            replies={200: {JSON: _PUBLISHED}, 207: {JSON: _PUBLISHED}},
            body={JSON: (shapes.Publish,), frames.ARROW_MEDIA_TYPE: (), frames.MEDIA_TYPE: ()},
        ),
    ),
    Operation(
        name="fetch",
        method="GET",
        path=f"{_TOPIC}/partitions/{{partition}}/messages",
        rights=READ,
        summary="Fetch messages of a partition",
        problems=(404, 406, 416),
        media=Media(
            replies={200: {JSON: (shapes.Fetched,), frames.ARROW_MEDIA_TYPE: (), frames.MEDIA_TYPE: ()}},
            query=_FETCH_QUERY,
        ),
    ),
)
