"""The operations about groups and their members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lakelog.model.group import MAX_OWNER_BYTES, GroupInfo
from lakelog.model.membership import Membership
from lakelog.model.progress import GroupDescription, GroupLag, GroupList, GroupPage, LeaseList, TopicStats
from lakelog.model.seek import GroupPositions, SeekResult, Skipped
from lakelog.wire import consume_shapes
from lakelog.wire import group_shapes as shapes
from lakelog.wire.operations.operation import (
    JSON,
    MANAGE,
    NAME,
    READ,
    Audit,
    Media,
    Operation,
    number,
    parameter,
)

_TOPIC = "/v1/topics/{topic}"
_GROUP = "/v1/groups/{group}"
_DEAD = f"{_GROUP}/dead-letters"
_IDENTITY: Mapping[str, object] = {"type": "string", "minLength": 1, "maxLength": MAX_OWNER_BYTES}
_WHOSE = {"topic": "orders", "group": "billing", "owner": "worker-1", "partition": 0}


_OF_TOPIC = (parameter("topic", NAME, "Only this topic."),)
_LIST_QUERY = (
    parameter("after", NAME, "Only groups whose names come behind this one: the `next` of the page before."),
    parameter("limit", number(1, 1000, 1000), "At most so many groups."),
)
_MEMBERS: tuple[Operation[Any, Any], ...] = (
    Operation(
        name="join",
        method="POST",
        path=f"{_GROUP}/join",
        rights=READ,
        summary="Join a group, which is made if there is none",
        example={"member_id": "consumer-1", "topics": ["orders"], "session_timeout_ms": 30000},
        problems=(404, 409),
        media=Media(replies={200: {JSON: (Membership,)}}, body={JSON: (shapes.Join,)}),
    ),
    Operation(
        name="heartbeat",
        method="POST",
        path=f"{_GROUP}/heartbeat",
        rights=READ,
        summary="Say that a member is alive, and hear what it is to read",
        example={"member_id": "consumer-1", "generation": 1},
        problems=(404, 409),
        media=Media(replies={200: {JSON: (Membership,)}}, body={JSON: (shapes.Heartbeat,)}),
    ),
    Operation(
        name="leave",
        method="POST",
        path=f"{_GROUP}/leave",
        rights=READ,
        summary="Leave a group",
        example={"member_id": "consumer-1"},
        problems=(404, 409),
        media=Media(replies={204: {}}, body={JSON: (shapes.Leave,)}),
    ),
    Operation(
        name="list_groups",
        method="GET",
        path="/v1/groups",
        rights=READ,
        summary="List groups by name, with lag, age, members and dead letters",
        media=Media(replies={200: {JSON: (GroupPage,)}}, query=_LIST_QUERY),
    ),
    Operation(
        name="describe_group",
        method="GET",
        path=_GROUP,
        rights=READ,
        summary="Describe a group: members, progress, and why unfinished messages wait",
        problems=(404,),
        media=Media(replies={200: {JSON: (GroupDescription,)}}),
    ),
)

GROUPS: tuple[Operation[Any, Any], ...] = (
    *_MEMBERS,
    *(
        replace(each, name=f"short_{each.name}", alias_of=each.name, path=each.path.removeprefix("/v1"))
        for each in _MEMBERS
    ),
    Operation(
        name="lag",
        method="GET",
        path=f"{_GROUP}/lag",
        rights=READ,
        summary="How far a group is, by partition",
        problems=(404,),
        media=Media(replies={200: {JSON: (GroupLag,)}}, query=_OF_TOPIC),
    ),
    Operation(
        name="leases",
        method="GET",
        path=f"{_GROUP}/leases",
        rights=READ,
        summary="Who holds which messages of a group",
        problems=(404,),
        media=Media(replies={200: {JSON: (LeaseList,)}}, query=_OF_TOPIC),
    ),
    Operation(
        name="positions",
        method="GET",
        path=f"{_GROUP}/positions",
        rights=READ,
        summary="The committed offsets of a group in a topic",
        problems=(404,),
        media=Media(replies={200: {JSON: (GroupPositions,)}}, query=(replace(_OF_TOPIC[0], description="The topic."),)),
    ),
    Operation(
        name="commit",
        method="POST",
        path=f"{_GROUP}/positions",
        rights=READ,
        summary="Commit positions of a cursor group",
        example={"topic": "orders", "positions": [{"partition": 0, "offset": 812}]},
        problems=(404, 409),
        media=Media(replies={204: {}}, body={JSON: (shapes.Commit,)}),
    ),
    Operation(
        name="alter_group",
        method="PATCH",
        path=_GROUP,
        rights=MANAGE,
        summary="Change a group's settings",
        example={"retries": {"max": 5}, "window": 500},
        problems=(404, 409),
        audit=Audit(text="altered group {group}"),
        media=Media(replies={200: {JSON: (GroupInfo,)}}, body={JSON: (consume_shapes.SettingsShape,)}),
    ),
    Operation(
        name="delete_group",
        method="DELETE",
        path=_GROUP,
        rights=MANAGE,
        summary="Delete a group, its progress and its dead letters",
        problems=(404, 409),
        audit=Audit(text="deleted group {group}"),
        media=Media(replies={204: {}}),
    ),
    Operation(
        name="seek",
        method="POST",
        path=f"{_GROUP}/seek",
        rights=MANAGE,
        summary="Move a group to another position",
        example={"topic": "orders", "position": "earliest", "dry_run": True},
        problems=(404, 409),
        audit=Audit(text="moved group {group} in topic {topic}"),
        media=Media(replies={200: {JSON: (SeekResult,)}}, body={JSON: (shapes.Seek,)}),
    ),
    Operation(
        name="skip",
        method="POST",
        path=f"{_GROUP}/skip",
        rights=MANAGE,
        summary="Move a group past messages of a partition without delivering them",
        example={"topic": "orders", "partition": 1, "offset": 812, "dry_run": True},
        problems=(404, 409, 416),
        audit=Audit(text="skipped messages of topic {topic} for group {group}"),
        media=Media(replies={200: {JSON: (Skipped,)}}, body={JSON: (shapes.Skip,)}),
    ),
    Operation(
        name="pause_group",
        method="POST",
        path=f"{_GROUP}/pause",
        rights=MANAGE,
        summary="Hand out nothing more, of a topic or of all",
        example={"topic": "orders"},
        problems=(404, 409),
        audit=Audit(text="paused group {group}"),
        media=Media(replies={200: {JSON: (GroupInfo,)}}, body={JSON: (shapes.Pause,)}, is_body_optional=True),
    ),
    Operation(
        name="resume_group",
        method="POST",
        path=f"{_GROUP}/resume",
        rights=MANAGE,
        summary="Go on",
        example={"topic": "orders"},
        problems=(404, 409),
        audit=Audit(text="resumed group {group}"),
        media=Media(replies={200: {JSON: (GroupInfo,)}}, body={JSON: (shapes.Pause,)}, is_body_optional=True),
    ),
    Operation(
        name="pause_topic",
        method="POST",
        path=f"{_TOPIC}/pause",
        rights=MANAGE,
        summary="Pause a topic for every group that reads it",
        problems=(404, 409),
        audit=Audit(text="paused all groups of topic {topic}"),
        media=Media(replies={200: {JSON: (GroupList,)}}),
    ),
    Operation(
        name="resume_topic",
        method="POST",
        path=f"{_TOPIC}/resume",
        rights=MANAGE,
        summary="Go on with a topic in every group that reads it",
        problems=(404, 409),
        audit=Audit(text="resumed all groups of topic {topic}"),
        media=Media(replies={200: {JSON: (GroupList,)}}),
    ),
    Operation(
        name="topic_stats",
        method="GET",
        path=f"{_TOPIC}/stats",
        rights=READ,
        summary="A topic's messages, and how far each of its groups is",
        problems=(404,),
        media=Media(replies={200: {JSON: (TopicStats,)}}),
    ),
)
