"""The operations that publish and fetch messages. They carry bytes, and have their own handlers."""

from __future__ import annotations

from typing import Any

from lakelog.wire import frames, shapes
from lakelog.wire.operations.operation import JSON, PUBLISH, READ, Media, Operation, Parameter, number

_PUBLISHED = (shapes.PublishAnswer, shapes.FramesAnswer)
_TOPIC = "/v1/topics/{topic}"
_FETCH_QUERY = (
    Parameter(
        "offset",
        {"anyOf": [number(0, 2**62), {"enum": ["earliest", "latest"]}]},
        "Begin at an offset, or at either end. Give `offset`, `time` or `last`, or none for earliest.",
    ),
    Parameter(
        "time",
        {"type": "string", "format": "date-time"},
        "Begin with the first message appended at this time or later.",
    ),
    Parameter("last", number(0, 2**62), "Begin this many messages before the high watermark."),
    Parameter("limit", number(1, 10_000, 1000), "The largest number of messages to return."),
    Parameter("max_bytes", number(1, 16 << 20, 16 << 20), "Stop after the batch that reaches this many stored bytes."),
    Parameter("wait_ms", number(0, 30_000, 0), "How long to wait if there are no messages."),
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
            replies={200: {JSON: (shapes.FetchReply,), frames.ARROW_MEDIA_TYPE: (), frames.MEDIA_TYPE: ()}},
            query=_FETCH_QUERY,
        ),
    ),
)
