"""The operations about topics."""

from __future__ import annotations

from lakelog.model import schema, topic_info
from lakelog.wire.operations.operation import PUBLISH, READ, SEE, Audit, Operation, manage, read

_TOPICS = "/v1/topics"
_TOPIC = f"{_TOPICS}/{{topic}}"
_SCHEMA = f"{_TOPIC}/schema"

CREATE_TOPIC = manage(
    "create_topic",
    _TOPICS,
    "Create a topic",
    topic_info.CreateTopicRequest,
    topic_info.TopicInfo,
    status=201,
    is_repeatable=False,
    example={"name": "orders", "partitions": 4, "retention": {"max_age_ms": 604_800_000}},
    audit=Audit(text="created topic {topic}"),
    problems=(409,),
)
LIST_TOPICS = read(
    "list_topics",
    _TOPICS,
    "List topics by name",
    topic_info.TopicQuery,
    topic_info.TopicPage,
    problems=(404,),
    rights=SEE,
)
# A producer has to know how many partitions there are, and its token may have no other right.
DESCRIBE_TOPIC = read(
    "describe_topic",
    _TOPIC,
    "Describe a topic and its partitions",
    topic_info.TopicRequest,
    topic_info.TopicInfo,
    rights=SEE | PUBLISH,
)
ALTER_TOPIC = manage(
    "alter_topic",
    _TOPIC,
    "Change a topic's settings, or add partitions",
    topic_info.AlterTopicRequest,
    topic_info.TopicInfo,
    method="PATCH",
    example={"partitions": 8},
    audit=Audit(text="altered topic {topic}"),
)
DELETE_TOPIC: Operation[topic_info.TopicRequest, None] = manage(
    "delete_topic",
    _TOPIC,
    "Delete a topic and all its messages",
    topic_info.TopicRequest,
    None,
    method="DELETE",
    is_repeatable=False,
    audit=Audit(text="deleted topic {topic}"),
    problems=(404,),
)
PURGE_TOPIC = manage(
    "purge_topic",
    f"{_TOPIC}/purge",
    "Remove all messages published so far; offsets continue",
    topic_info.TopicRequest,
    topic_info.Purged,
    is_repeatable=False,
    audit=Audit(text="purged topic {topic}", result="removed", in_cells=True),
    problems=(404,),
)
SHOW_SCHEMA = read(
    "show_schema",
    _SCHEMA,
    "Return the schema of a topic",
    schema.SchemaQuery,
    schema.TopicSchema,
    rights=SEE | PUBLISH,
)
SET_SCHEMA = manage(
    "set_schema",
    _SCHEMA,
    "Set the schema of a topic, or the rule for its changes",
    schema.SetSchemaRequest,
    schema.TopicSchema,
    method="PUT",
    example={"schema": {"type": "object", "required": ["id"]}, "compatibility": "backward"},
    audit=Audit(text="set the schema of topic {topic}"),
)
CHECK_SCHEMA = read(
    "check_schema",
    f"{_SCHEMA}/check",
    "Compare a schema with that of a topic, without a change",
    schema.CheckSchemaRequest,
    schema.SchemaCheck,
    method="POST",
    example={"schema": {"type": "object", "required": ["id"]}},
    rights=READ | PUBLISH,
)
REMOVE_SCHEMA: Operation[topic_info.TopicRequest, None] = manage(
    "remove_schema",
    _SCHEMA,
    "Remove the schema of a topic; its versions are kept",
    topic_info.TopicRequest,
    None,
    method="DELETE",
    audit=Audit(text="removed the schema of topic {topic}"),
    problems=(404,),
)
