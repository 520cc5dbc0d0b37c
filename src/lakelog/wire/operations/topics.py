"""The operations about topics."""

from __future__ import annotations

from lakelog.model import topic_info
from lakelog.wire.operations.operation import MANAGE, PUBLISH, READ, Audit, Operation

_TOPICS = "/v1/topics"
_TOPIC = f"{_TOPICS}/{{topic}}"

CREATE_TOPIC = Operation(
    name="create_topic",
    method="POST",
    path=_TOPICS,
    rights=MANAGE,
    summary="Create a topic",
    request=topic_info.CreateTopicRequest,
    reply=topic_info.TopicInfo,
    status=201,
    is_repeatable=False,
    example={"name": "orders", "partitions": 4, "retention": {"max_age_ms": 604_800_000}},
    audit=Audit(text="created topic {topic}"),
    problems=(409,),
)
LIST_TOPICS = Operation(
    name="list_topics",
    method="GET",
    path=_TOPICS,
    rights=READ,
    summary="List topics by name",
    request=topic_info.TopicQuery,
    reply=topic_info.TopicPage,
)
DESCRIBE_TOPIC = Operation(
    name="describe_topic",
    method="GET",
    path=_TOPIC,
    # A producer has to know how many partitions there are, and its token may have no other right.
    rights=READ | PUBLISH,
    summary="Describe a topic and its partitions",
    request=topic_info.TopicRequest,
    reply=topic_info.TopicInfo,
    problems=(404,),
)
ALTER_TOPIC = Operation(
    name="alter_topic",
    method="PATCH",
    path=_TOPIC,
    rights=MANAGE,
    summary="Change a topic's settings, or add partitions",
    request=topic_info.AlterTopicRequest,
    reply=topic_info.TopicInfo,
    example={"partitions": 8},
    audit=Audit(text="altered topic {topic}"),
    problems=(404, 409),
)
DELETE_TOPIC: Operation[topic_info.TopicRequest, None] = Operation(
    name="delete_topic",
    method="DELETE",
    path=_TOPIC,
    rights=MANAGE,
    summary="Delete a topic and all its messages",
    request=topic_info.TopicRequest,
    is_repeatable=False,
    audit=Audit(text="deleted topic {topic}"),
    problems=(404,),
)
PURGE_TOPIC = Operation(
    name="purge_topic",
    method="POST",
    path=f"{_TOPIC}/purge",
    rights=MANAGE,
    summary="Remove all messages published so far; offsets continue",
    request=topic_info.TopicRequest,
    reply=topic_info.Purged,
    is_repeatable=False,
    audit=Audit(text="purged topic {topic}", result="removed"),
    problems=(404,),
)

TOPICS = (CREATE_TOPIC, LIST_TOPICS, DESCRIBE_TOPIC, ALTER_TOPIC, DELETE_TOPIC, PURGE_TOPIC)
