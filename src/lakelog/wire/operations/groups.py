"""The operations about groups and their members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lakelog.model.group import AlterGroupRequest, GroupInfo
from lakelog.model.membership import HeartbeatRequest, LeaveRequest, Membership
from lakelog.model.progress import (
    GroupDescription,
    GroupLag,
    GroupList,
    GroupPage,
    GroupQuery,
    GroupRequest,
    GroupTopicQuery,
    LeaseList,
    PauseRequest,
    TopicGroupsRequest,
    TopicStats,
)
from lakelog.model.seek import (
    CommitRequest,
    GroupPositions,
    PositionsRequest,
    SeekRequest,
    SeekResult,
    Skipped,
    SkipRequest,
)
from lakelog.wire import group_shapes as shapes
from lakelog.wire.operations.operation import (
    JSON,
    MANAGE,
    READ,
    Audit,
    Media,
    Operation,
)

_TOPIC = "/v1/topics/{topic}"
_GROUP = "/v1/groups/{group}"


JOIN: Operation[Any, Any] = Operation(
    name="join",
    method="POST",
    path=f"{_GROUP}/join",
    rights=READ,
    summary="Join a group, which is created if it does not exist",
    example={"member_id": "consumer-1", "topics": ["orders"], "session_timeout_ms": 30000},
    problems=(404, 409),
    media=Media(replies={200: {JSON: (Membership,)}}, body={JSON: (shapes.Join,)}),
)
HEARTBEAT = Operation(
    name="heartbeat",
    method="POST",
    path=f"{_GROUP}/heartbeat",
    rights=READ,
    summary="Keep a member in its group, and return its partitions",
    example={"member_id": "consumer-1", "generation": 1},
    problems=(404, 409),
    request=HeartbeatRequest,
    reply=Membership,
    home=("group",),
)
LEAVE: Operation[LeaveRequest, None] = Operation(
    name="leave",
    method="POST",
    path=f"{_GROUP}/leave",
    rights=READ,
    summary="Leave a group",
    example={"member_id": "consumer-1"},
    problems=(404, 409),
    request=LeaveRequest,
    home=("group",),
)
LIST_GROUPS = Operation(
    name="list_groups",
    method="GET",
    path="/v1/groups",
    rights=READ,
    summary="List groups by name, with lag, age, members and dead letters",
    request=GroupQuery,
    reply=GroupPage,
)
DESCRIBE_GROUP = Operation(
    name="describe_group",
    method="GET",
    path=_GROUP,
    rights=READ,
    summary="Describe a group: members, progress, and why unfinished messages wait",
    problems=(404,),
    request=GroupRequest,
    reply=GroupDescription,
)
LAG = Operation(
    name="lag",
    method="GET",
    path=f"{_GROUP}/lag",
    rights=READ,
    summary="Return the progress of a group by partition",
    problems=(404,),
    request=GroupTopicQuery,
    reply=GroupLag,
)
LEASES = Operation(
    name="leases",
    method="GET",
    path=f"{_GROUP}/leases",
    rights=READ,
    summary="List the open leases of a group",
    problems=(404,),
    request=GroupTopicQuery,
    reply=LeaseList,
)
POSITIONS = Operation(
    name="positions",
    method="GET",
    path=f"{_GROUP}/positions",
    rights=READ,
    summary="Return the committed offsets of a group in a topic",
    problems=(404,),
    request=PositionsRequest,
    reply=GroupPositions,
)
COMMIT: Operation[CommitRequest, None] = Operation(
    name="commit",
    method="POST",
    path=f"{_GROUP}/positions",
    rights=READ,
    summary="Commit positions of a cursor group",
    example={"topic": "orders", "positions": [{"partition": 0, "offset": 812}]},
    problems=(404, 409),
    request=CommitRequest,
)
ALTER_GROUP = Operation(
    name="alter_group",
    method="PATCH",
    path=_GROUP,
    rights=MANAGE,
    summary="Change a group's settings",
    example={"retries": {"max": 5}, "window": 500},
    problems=(404, 409),
    audit=Audit(text="altered group {group}"),
    request=AlterGroupRequest,
    reply=GroupInfo,
)
DELETE_GROUP: Operation[GroupRequest, None] = Operation(
    name="delete_group",
    method="DELETE",
    path=_GROUP,
    rights=MANAGE,
    summary="Delete a group, its progress and its dead letters",
    problems=(404, 409),
    audit=Audit(text="deleted group {group}"),
    request=GroupRequest,
    is_repeatable=False,
)
SEEK = Operation(
    name="seek",
    method="POST",
    path=f"{_GROUP}/seek",
    rights=MANAGE,
    summary="Move a group to another position",
    example={"topic": "orders", "position": "earliest", "dry_run": True},
    problems=(404, 409),
    audit=Audit(text="moved group {group} in topic {topic}"),
    request=SeekRequest,
    reply=SeekResult,
)
SKIP = Operation(
    name="skip",
    method="POST",
    path=f"{_GROUP}/skip",
    rights=MANAGE,
    summary="Move a group past messages of a partition without delivering them",
    example={"topic": "orders", "partition": 1, "offset": 812, "dry_run": True},
    problems=(404, 409, 416),
    audit=Audit(text="skipped messages of topic {topic} for group {group}", result="messages"),
    request=SkipRequest,
    reply=Skipped,
    home=("group", "topic"),
)
PAUSE_GROUP = Operation(
    name="pause_group",
    method="POST",
    path=f"{_GROUP}/pause",
    rights=MANAGE,
    summary="Stop the delivery of messages, of one topic or of all",
    example={"topic": "orders"},
    problems=(404, 409),
    audit=Audit(text="paused group {group}"),
    request=PauseRequest,
    reply=GroupInfo,
)
RESUME_GROUP = Operation(
    name="resume_group",
    method="POST",
    path=f"{_GROUP}/resume",
    rights=MANAGE,
    summary="Continue the delivery of messages",
    example={"topic": "orders"},
    problems=(404, 409),
    audit=Audit(text="resumed group {group}"),
    request=PauseRequest,
    reply=GroupInfo,
)
PAUSE_TOPIC = Operation(
    name="pause_topic",
    method="POST",
    path=f"{_TOPIC}/pause",
    rights=MANAGE,
    summary="Pause a topic for every group that reads it",
    problems=(404, 409),
    audit=Audit(text="paused all groups of topic {topic}"),
    request=TopicGroupsRequest,
    reply=GroupList,
)
RESUME_TOPIC = Operation(
    name="resume_topic",
    method="POST",
    path=f"{_TOPIC}/resume",
    rights=MANAGE,
    summary="Resume a topic for every group that reads it",
    problems=(404, 409),
    audit=Audit(text="resumed all groups of topic {topic}"),
    request=TopicGroupsRequest,
    reply=GroupList,
)
TOPIC_STATS = Operation(
    name="topic_stats",
    method="GET",
    path=f"{_TOPIC}/stats",
    rights=READ,
    summary="Return the figures of a topic and of its groups",
    problems=(404,),
    request=TopicGroupsRequest,
    reply=TopicStats,
)

_MEMBERS: tuple[Operation[Any, Any], ...] = (JOIN, HEARTBEAT, LEAVE, LIST_GROUPS, DESCRIBE_GROUP)

GROUPS: tuple[Operation[Any, Any], ...] = (
    *_MEMBERS,
    *(
        replace(each, name=f"short_{each.name}", alias_of=each.name, path=each.path.removeprefix("/v1"))
        for each in _MEMBERS
    ),
    LAG,
    LEASES,
    POSITIONS,
    COMMIT,
    ALTER_GROUP,
    DELETE_GROUP,
    SEEK,
    SKIP,
    PAUSE_GROUP,
    RESUME_GROUP,
    PAUSE_TOPIC,
    RESUME_TOPIC,
    TOPIC_STATS,
)
