"""The operations about topics."""

from __future__ import annotations

from typing import Any

from lakelog.wire import shapes
from lakelog.wire.operations.operation import JSON, MANAGE, PUBLISH, READ, Audit, Media, Operation, Parameter

_TOPIC = "/v1/topics/{topic}"
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

TOPICS: tuple[Operation[Any, Any], ...] = (
    Operation(
        name="create_topic",
        method="POST",
        path="/v1/topics",
        rights=MANAGE,
        summary="Create a topic",
        example={"name": "orders", "partitions": 4, "retention": {"max_age_ms": 604800000}},
        problems=(409,),
        audit=Audit(text="created topic {topic}"),
        media=Media(replies={201: {JSON: (shapes.TopicShape,)}}, body={JSON: (shapes.TopicCreate,)}),
    ),
    Operation(
        name="list_topics",
        method="GET",
        path="/v1/topics",
        rights=READ,
        summary="List topics by name",
        media=Media(replies={200: {JSON: (shapes.TopicList,)}}, query=_LIST_QUERY),
    ),
    Operation(
        name="describe_topic",
        method="GET",
        path=_TOPIC,
        rights=READ | PUBLISH,
        summary="Describe a topic and its partitions",
        problems=(404,),
        media=Media(replies={200: {JSON: (shapes.TopicShape,)}}),
    ),
    Operation(
        name="alter_topic",
        method="PATCH",
        path=_TOPIC,
        rights=MANAGE,
        summary="Change a topic's settings, or add partitions",
        example={"partitions": 8},
        problems=(404, 409),
        audit=Audit(text="altered topic {topic}"),
        media=Media(replies={200: {JSON: (shapes.TopicShape,)}}, body={JSON: (shapes.TopicAlter,)}),
    ),
    Operation(
        name="delete_topic",
        method="DELETE",
        path=_TOPIC,
        rights=MANAGE,
        summary="Delete a topic and all its messages",
        problems=(404,),
        audit=Audit(text="deleted topic {topic}"),
        media=Media(replies={204: {}}),
    ),
    Operation(
        name="purge_topic",
        method="POST",
        path=f"{_TOPIC}/purge",
        rights=MANAGE,
        summary="Remove all messages published so far; offsets go on",
        problems=(404,),
        audit=Audit(text="purged topic {topic}"),
        media=Media(replies={200: {JSON: (shapes.Purged,)}}),
    ),
)
