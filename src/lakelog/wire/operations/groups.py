"""The operations about groups and their members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lakelog.model import progress, seek
from lakelog.model.group import AlterGroupRequest, GroupInfo
from lakelog.model.history import GroupHistory, HistoryQuery
from lakelog.model.membership import HeartbeatRequest, JoinRequest, LeaveRequest, Membership
from lakelog.wire.operations.operation import SEE, Audit, Operation, manage, read

_TOPIC = "/v1/topics/{topic}"
_GROUP = "/v1/groups/{group}"


JOIN = read(
    "join",
    f"{_GROUP}/join",
    "Join a group, which is created if it does not exist",
    JoinRequest,
    Membership,
    method="POST",
    example={"member_id": "consumer-1", "topics": ["orders"], "session_timeout_ms": 30000},
    problems=(404, 409),
    audit=Audit(text="replaced the members of group {group}", only_with="replaces", in_cells=True),
    home=("group",),
)
HEARTBEAT = read(
    "heartbeat",
    f"{_GROUP}/heartbeat",
    "Keep a member in its group, and return its partitions",
    HeartbeatRequest,
    Membership,
    method="POST",
    example={"member_id": "consumer-1", "generation": 1},
    problems=(404, 409),
    home=("group",),
)
LEAVE: Operation[LeaveRequest, None] = read(
    "leave",
    f"{_GROUP}/leave",
    "Leave a group",
    LeaveRequest,
    None,
    method="POST",
    example={"member_id": "consumer-1"},
    problems=(404, 409),
    home=("group",),
)
LIST_GROUPS = read(
    "list_groups",
    "/v1/groups",
    "List groups by name, with lag, age, members and dead letters",
    progress.GroupQuery,
    progress.GroupPage,
    problems=(),
    rights=SEE,
)
DESCRIBE_GROUP = read(
    "describe_group",
    _GROUP,
    "Describe a group: members, progress, and why unfinished messages wait",
    progress.GroupRequest,
    progress.GroupDescription,
    rights=SEE,
)
LAG = read(
    "lag",
    f"{_GROUP}/lag",
    "Return the progress of a group by partition",
    progress.GroupTopicQuery,
    progress.GroupLag,
    rights=SEE,
)
LEASES = read(
    "leases",
    f"{_GROUP}/leases",
    "List the open leases of a group",
    progress.GroupTopicQuery,
    progress.LeaseList,
    rights=SEE,
)
GROUP_HISTORY = read(
    "group_history",
    f"{_GROUP}/history",
    "Return the lag, age and throughput of a group over time",
    HistoryQuery,
    GroupHistory,
    rights=SEE,
)
POSITIONS = read(
    "positions",
    f"{_GROUP}/positions",
    "Return the committed offsets of a group in a topic",
    seek.PositionsRequest,
    seek.GroupPositions,
    rights=SEE,
)
COMMIT: Operation[seek.CommitRequest, None] = read(
    "commit",
    f"{_GROUP}/positions",
    "Commit positions of a cursor group",
    seek.CommitRequest,
    None,
    method="POST",
    example={"topic": "orders", "positions": [{"partition": 0, "offset": 812}]},
    problems=(404, 409),
)
ALTER_GROUP = manage(
    "alter_group",
    _GROUP,
    "Change a group's settings",
    AlterGroupRequest,
    GroupInfo,
    method="PATCH",
    example={"retries": {"max": 5}, "window": 500},
    audit=Audit(text="altered group {group}"),
)
DELETE_GROUP: Operation[progress.GroupRequest, None] = manage(
    "delete_group",
    _GROUP,
    "Delete a group, its progress and its dead letters",
    progress.GroupRequest,
    None,
    method="DELETE",
    audit=Audit(text="deleted group {group}"),
    is_repeatable=False,
)
SEEK = manage(
    "seek",
    f"{_GROUP}/seek",
    "Move a group to another position",
    seek.SeekRequest,
    seek.SeekResult,
    example={"topic": "orders", "position": "earliest", "dry_run": True},
    audit=Audit(text="moved group {group} in topic {topic}"),
)
SKIP = manage(
    "skip",
    f"{_GROUP}/skip",
    "Move a group past messages of a partition without delivering them",
    seek.SkipRequest,
    seek.Skipped,
    example={"topic": "orders", "partition": 1, "offset": 812, "dry_run": True},
    problems=(404, 409, 416),
    audit=Audit(text="skipped messages of topic {topic} for group {group}", result="messages", in_cells=True),
    home=("group", "topic"),
)
PAUSE_GROUP = manage(
    "pause_group",
    f"{_GROUP}/pause",
    "Stop the delivery of messages, of one topic or of all",
    progress.PauseRequest,
    GroupInfo,
    example={"topic": "orders"},
    audit=Audit(text="paused group {group}"),
)
RESUME_GROUP = manage(
    "resume_group",
    f"{_GROUP}/resume",
    "Continue the delivery of messages",
    progress.PauseRequest,
    GroupInfo,
    example={"topic": "orders"},
    audit=Audit(text="resumed group {group}"),
)
PAUSE_TOPIC = manage(
    "pause_topic",
    f"{_TOPIC}/pause",
    "Pause a topic for every group that reads it",
    progress.TopicGroupsRequest,
    progress.GroupList,
    audit=Audit(text="paused all groups of topic {topic}"),
)
RESUME_TOPIC = manage(
    "resume_topic",
    f"{_TOPIC}/resume",
    "Resume a topic for every group that reads it",
    progress.TopicGroupsRequest,
    progress.GroupList,
    audit=Audit(text="resumed all groups of topic {topic}"),
)
TOPIC_STATS = read(
    "topic_stats",
    f"{_TOPIC}/stats",
    "Return the figures of a topic and of its groups",
    progress.TopicStatsRequest,
    progress.TopicStats,
    rights=SEE,
)

SHORT_PATHS: tuple[Operation[Any, Any], ...] = tuple(
    replace(each, name=f"short_{each.name}", alias_of=each.name, path=each.path.removeprefix("/v1"))
    for each in (JOIN, HEARTBEAT, LEAVE, LIST_GROUPS, DESCRIBE_GROUP)
)
