"""The routing table: every route with the right that it needs and what the API's description says about it.

Authorisation, dispatch and OpenAPI are all driven by this one table. It handles nothing itself. The routes of groups
stand in `group_routes`, those of pipelines in `pipeline_routes`.
"""

from __future__ import annotations

from lakelog.model.token import Right
from lakelog.server.group_routes import CONSUMING, DEAD_LETTERS, GROUPS
from lakelog.server.lake_routes import LAKE
from lakelog.server.pipeline_routes import PIPELINES
from lakelog.server.routing import JSON, PUBLIC, Parameter, Route, rule
from lakelog.server.write_routes import WRITES
from lakelog.wire import frames, shapes

__all__ = ["PUBLIC", "ROUTES", "Route"]

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
        description="Begin so many messages before the high watermark.",
    ),
    Parameter(
        name="limit",
        schema={"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1000},
        description="At most so many messages.",
    ),
    Parameter(
        name="max_bytes",
        schema={"type": "integer", "minimum": 1, "maximum": 16 << 20, "default": 16 << 20},
        description="Stop after the batch that reaches so many stored bytes.",
    ),
    Parameter(
        name="wait_ms",
        schema={"type": "integer", "minimum": 0, "maximum": 30_000, "default": 0},
        description="How long to wait while there is nothing.",
    ),
)
_LIST_QUERY = (
    Parameter(
        name="after",
        schema={"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"},
        description="Only topics whose names come behind this one: the `next` of the page before.",
    ),
    Parameter(
        name="limit",
        schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 1000},
        description="At most so many topics.",
    ),
)

# The data routes first: they are also matched by hand, before all others.
_TOPICS: tuple[Route, ...] = (
    Route(
        operation="publish",
        method="POST",
        path=f"{_TOPIC}/messages",
        rule=rule(Right.PUBLISH),
        summary="Publish messages",
        body={JSON: (shapes.Publish,), frames.ARROW_MEDIA_TYPE: (), frames.MEDIA_TYPE: ()},
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
        answers={200: {JSON: _PUBLISHED}, 207: {JSON: _PUBLISHED}},
        problems=(404, 409),
    ),
    Route(
        operation="fetch",
        method="GET",
        path=f"{_TOPIC}/partitions/{{partition}}/messages",
        rule=rule(Right.READ),
        summary="Fetch messages of a partition",
        query=_FETCH_QUERY,
        answers={200: {JSON: (shapes.Fetched,), frames.ARROW_MEDIA_TYPE: (), frames.MEDIA_TYPE: ()}},
        problems=(404, 406, 416),
    ),
    Route(
        operation="create_topic",
        method="POST",
        path="/v1/topics",
        rule=rule(Right.MANAGE),
        summary="Create a topic",
        body={JSON: (shapes.TopicCreate,)},
        example={"name": "orders", "partitions": 4, "retention": {"max_age_ms": 604_800_000}},
        answers={201: {JSON: (shapes.TopicShape,)}},
        problems=(409,),
    ),
    Route(
        operation="list_topics",
        method="GET",
        path="/v1/topics",
        rule=rule(Right.READ),
        summary="List topics by name",
        query=_LIST_QUERY,
        answers={200: {JSON: (shapes.TopicList,)}},
    ),
    Route(
        operation="describe_topic",
        method="GET",
        path=_TOPIC,
        # A producer has to know how many partitions there are, and its token may have no other right.
        rule=rule(Right.READ, Right.PUBLISH),
        summary="Describe a topic and its partitions",
        answers={200: {JSON: (shapes.TopicShape,)}},
        problems=(404,),
    ),
    Route(
        operation="alter_topic",
        method="PATCH",
        path=_TOPIC,
        rule=rule(Right.MANAGE),
        summary="Change a topic's settings, or add partitions",
        body={JSON: (shapes.TopicAlter,)},
        example={"partitions": 8},
        answers={200: {JSON: (shapes.TopicShape,)}},
        problems=(404, 409),
    ),
    Route(
        operation="delete_topic",
        method="DELETE",
        path=_TOPIC,
        rule=rule(Right.MANAGE),
        summary="Delete a topic and all its messages",
        answers={204: {}},
        problems=(404,),
    ),
    Route(
        operation="purge_topic",
        method="POST",
        path=f"{_TOPIC}/purge",
        rule=rule(Right.MANAGE),
        summary="Remove all messages published so far; offsets go on",
        answers={200: {JSON: (shapes.Purged,)}},
        problems=(404,),
    ),
)

_OPERATIONS: tuple[Route, ...] = (
    Route(
        operation="healthz",
        method="GET",
        path="/healthz",
        rule=PUBLIC,
        summary="Whether the process is alive",
        answers={200: {JSON: (shapes.Health,)}},
    ),
    Route(
        operation="readyz",
        method="GET",
        path="/readyz",
        rule=PUBLIC,
        summary="Whether calls can be served now",
        answers={200: {JSON: (shapes.Health,)}, 503: {JSON: (shapes.Health,)}},
    ),
    Route(
        operation="metrics",
        method="GET",
        path="/metrics",
        rule=PUBLIC,
        summary="Metrics for Prometheus",
        answers={200: {"text/plain": ()}},
    ),
    Route(
        operation="openapi",
        method="GET",
        path="/openapi.json",
        rule=PUBLIC,
        summary="This description",
        answers={200: {JSON: ()}},
    ),
)

ROUTES: tuple[Route, ...] = (*_TOPICS, *CONSUMING, *GROUPS, *DEAD_LETTERS, *LAKE, *WRITES, *PIPELINES, *_OPERATIONS)
