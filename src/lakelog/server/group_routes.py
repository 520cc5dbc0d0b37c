"""The part of the routing table that is about groups: consuming, members, administration, dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakelog.model import limits
from lakelog.model.group import DEFAULT_LEASE_MS, MAX_LEASE_MS, MAX_OWNER_BYTES, MIN_LEASE_MS
from lakelog.model.token import Right
from lakelog.server.routing import JSON, Parameter, Route, rule
from lakelog.wire import consume_shapes, frames, leases
from lakelog.wire import group_shapes as shapes

_READ, _MANAGE = rule(Right.READ), rule(Right.MANAGE)
_TOPIC = "/v1/topics/{topic}"
_GROUP = "/v1/groups/{group}"
_DEAD = f"{_GROUP}/dead-letters"
_NAME: Mapping[str, object] = {"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"}
_IDENTITY: Mapping[str, object] = {"type": "string", "minLength": 1, "maxLength": MAX_OWNER_BYTES}
_WHOSE = {"topic": "orders", "group": "billing", "owner": "worker-1", "partition": 0}


def _number(lowest: int, highest: int, default: int | None = None) -> dict[str, object]:
    schema: dict[str, object] = {"type": "integer", "minimum": lowest, "maximum": highest}
    return schema if default is None else {**schema, "default": default}


def _parameter(name: str, schema: Mapping[str, object], description: str) -> Parameter:
    return Parameter(name=name, schema=schema, description=description)


_PUSH_QUERY = (
    _parameter("topic", _NAME, "The topic."),
    _parameter("group", _NAME, "The group."),
    _parameter("owner", _IDENTITY, "Who leases the messages, and will answer for them."),
    _parameter(
        "max_in_flight", _number(1, limits.MAX_BATCH_MESSAGES, 1), "At most so many messages are out and unanswered."
    ),
    _parameter("lease_ms", _number(MIN_LEASE_MS, MAX_LEASE_MS, DEFAULT_LEASE_MS), "How long each lease is."),
    _parameter("member_id", _IDENTITY, "The member of the group that asks, if it is one."),
    _parameter("generation", _number(0, 2**62), "The generation that the member knows."),
    _parameter(
        "start_from", {"type": "string", "maxLength": 40}, "`earliest`, `latest`, `none`, an offset, or a time."
    ),
    _parameter("order", {"enum": ["key", "partition", "none"]}, "The group's order."),
    _parameter("filter", {"type": "string"}, "The group's filter."),
    _parameter("dead_letter", {"type": "boolean"}, "Whether the group keeps dead letters."),
    _parameter("assignor", {"enum": ["range", "round-robin", "sticky", "cooperative-sticky"]}, "The group's assignor."),
    _parameter("window", _number(1, 10_000), "The group's window."),
)
_OF_TOPIC = (_parameter("topic", _NAME, "Only this topic."),)
_LIST_QUERY = (
    _parameter("after", _NAME, "Only groups whose names come behind this one: the `next` of the page before."),
    _parameter("limit", _number(1, 1000, 1000), "At most so many groups."),
)
_DEAD_QUERY = (
    _parameter("topic", _NAME, "Only dead letters of this topic."),
    _parameter("partition", _number(0, limits.MAX_PARTITIONS - 1), "Only those of this partition."),
    _parameter("where", {"type": "string"}, "Only those that this filter lets through."),
    _parameter("state", {"enum": ["dead", "redriven", "discarded"], "default": "dead"}, "What became of them."),
    _parameter("after", {"type": "string", "maxLength": 120}, "The `next` of the page before."),
    _parameter("limit", _number(1, 1000, 100), "At most so many."),
)


def _answer_route(operation: str, path: str, shape: type, summary: str, **more: object) -> Route:
    answers = {200: {JSON: (consume_shapes.Extended,)}} if operation == "extend" else {204: {}}
    return Route(
        operation=operation,
        method="POST",
        path=path,
        rule=_READ,
        summary=summary,
        body={JSON: (shape,)},
        example={**_WHOSE, "token": 4711, "offset": 812, **more},
        answers=answers,
        problems=(404, 409),
    )


# The data routes first: they are also matched by hand, before all others.
CONSUMING: tuple[Route, ...] = (
    Route(
        operation="consume",
        method="POST",
        path="/v1/consume",
        rule=_READ,
        summary="Lease messages",
        query=(
            _parameter(
                "repeat",
                {"type": "boolean", "default": False},
                "The call was sent before with the same `request_id`, and its answer was lost.",
            ),
        ),
        body={JSON: (consume_shapes.Consume,)},
        example={"topic": "orders", "group": "billing", "owner": "worker-1", "max_messages": 100},
        answers={200: {JSON: (consume_shapes.Consumed,), leases.MEDIA_TYPE: (), frames.ARROW_MEDIA_TYPE: ()}},
        problems=(404, 406, 409),
    ),
    Route(
        operation="push",
        method="GET",
        path="/v1/consume",
        rule=_READ,
        summary="Be pushed leased messages, until you hang up",
        query=_PUSH_QUERY,
        answers={200: {"application/x-ndjson": (consume_shapes.PushedShape,), "text/event-stream": ()}},
        problems=(404, 406, 409),
    ),
    _answer_route("ack", "/v1/ack", consume_shapes.Ack, "Finish leased messages"),
    _answer_route("ack_cumulative", "/v1/ack-cumulative", consume_shapes.AckCumulative, "Finish all up to an offset"),
    _answer_route("nack", "/v1/nack", consume_shapes.Nack, "Say that messages failed", reason="timeout"),
    _answer_route("discard", "/v1/discard", consume_shapes.Discard, "Finish messages as not wanted", reason="obsolete"),
    _answer_route("extend", "/v1/extend", consume_shapes.Extend, "Keep a lease for longer", lease_ms=30_000),
    Route(
        operation="answers",
        method="POST",
        path=f"{_TOPIC}/groups/{{group}}/answers",
        rule=_READ,
        summary="Answer for many leased messages at once",
        body={JSON: (consume_shapes.Answers,)},
        example={
            "owner": "worker-1",
            "answers": [{"verb": "ack", "partition": 0, "token": 4711, "offsets": [812, [815, 830]]}],
        },
        answers={200: {JSON: (consume_shapes.AnswersAnswer,)}},
        problems=(404, 409),
    ),
)

_MEMBERS: tuple[Route, ...] = (
    Route(
        operation="join",
        method="POST",
        path=f"{_GROUP}/join",
        rule=_READ,
        summary="Join a group, which is made if there is none",
        body={JSON: (shapes.Join,)},
        example={"member_id": "consumer-1", "topics": ["orders"], "session_timeout_ms": 30_000},
        answers={200: {JSON: (shapes.MembershipShape,)}},
        problems=(404, 409),
    ),
    Route(
        operation="heartbeat",
        method="POST",
        path=f"{_GROUP}/heartbeat",
        rule=_READ,
        summary="Say that a member is alive, and hear what it is to read",
        body={JSON: (shapes.Heartbeat,)},
        example={"member_id": "consumer-1", "generation": 1},
        answers={200: {JSON: (shapes.MembershipShape,)}},
        problems=(404, 409),
    ),
    Route(
        operation="leave",
        method="POST",
        path=f"{_GROUP}/leave",
        rule=_READ,
        summary="Leave a group",
        body={JSON: (shapes.Leave,)},
        example={"member_id": "consumer-1"},
        answers={204: {}},
        problems=(404, 409),
    ),
    Route(
        operation="list_groups",
        method="GET",
        path="/v1/groups",
        rule=_READ,
        summary="List groups by name, with lag, age, members and dead letters",
        query=_LIST_QUERY,
        answers={200: {JSON: (shapes.GroupSummaries,)}},
    ),
    Route(
        operation="describe_group",
        method="GET",
        path=_GROUP,
        rule=_READ,
        summary="Describe a group: members, progress, and why unfinished messages wait",
        answers={200: {JSON: (shapes.GroupDescribed,)}},
        problems=(404,),
    ),
)

GROUPS: tuple[Route, ...] = (
    *_MEMBERS,
    *(replace(each, operation=f"short_{each.operation}", path=each.path.removeprefix("/v1")) for each in _MEMBERS),
    Route(
        operation="lag",
        method="GET",
        path=f"{_GROUP}/lag",
        rule=_READ,
        summary="How far a group is, by partition",
        query=_OF_TOPIC,
        answers={200: {JSON: (shapes.Lag,)}},
        problems=(404,),
    ),
    Route(
        operation="leases",
        method="GET",
        path=f"{_GROUP}/leases",
        rule=_READ,
        summary="Who holds which messages of a group",
        query=_OF_TOPIC,
        answers={200: {JSON: (shapes.Held,)}},
        problems=(404,),
    ),
    Route(
        operation="positions",
        method="GET",
        path=f"{_GROUP}/positions",
        rule=_READ,
        summary="The committed offsets of a group in a topic",
        query=(replace(_OF_TOPIC[0], description="The topic."),),
        answers={200: {JSON: (shapes.Positions,)}},
        problems=(404,),
    ),
    Route(
        operation="commit",
        method="POST",
        path=f"{_GROUP}/positions",
        rule=_READ,
        summary="Commit positions of a cursor group",
        body={JSON: (shapes.Commit,)},
        example={"topic": "orders", "positions": [{"partition": 0, "offset": 812}]},
        answers={204: {}},
        problems=(404, 409),
    ),
    Route(
        operation="alter_group",
        method="PATCH",
        path=_GROUP,
        rule=_MANAGE,
        summary="Change a group's settings",
        body={JSON: (consume_shapes.SettingsShape,)},
        example={"retries": {"max": 5}, "window": 500},
        answers={200: {JSON: (shapes.GroupShape,)}},
        problems=(404, 409),
    ),
    Route(
        operation="delete_group",
        method="DELETE",
        path=_GROUP,
        rule=_MANAGE,
        summary="Delete a group, its progress and its dead letters",
        answers={204: {}},
        problems=(404, 409),
    ),
    Route(
        operation="seek",
        method="POST",
        path=f"{_GROUP}/seek",
        rule=_MANAGE,
        summary="Move a group to another position",
        body={JSON: (shapes.Seek,)},
        example={"topic": "orders", "position": "earliest", "dry_run": True},
        answers={200: {JSON: (shapes.Sought,)}},
        problems=(404, 409),
    ),
    Route(
        operation="skip",
        method="POST",
        path=f"{_GROUP}/skip",
        rule=_MANAGE,
        summary="Move a group past messages of a partition without delivering them",
        body={JSON: (shapes.Skip,)},
        example={"topic": "orders", "partition": 1, "offset": 812, "dry_run": True},
        answers={200: {JSON: (shapes.Skipped,)}},
        problems=(404, 409, 416),
    ),
    Route(
        operation="pause_group",
        method="POST",
        path=f"{_GROUP}/pause",
        rule=_MANAGE,
        summary="Hand out nothing more, of a topic or of all",
        body={JSON: (shapes.Pause,)},
        example={"topic": "orders"},
        body_optional=True,
        answers={200: {JSON: (shapes.GroupShape,)}},
        problems=(404, 409),
    ),
    Route(
        operation="resume_group",
        method="POST",
        path=f"{_GROUP}/resume",
        rule=_MANAGE,
        summary="Go on",
        body={JSON: (shapes.Pause,)},
        example={"topic": "orders"},
        body_optional=True,
        answers={200: {JSON: (shapes.GroupShape,)}},
        problems=(404, 409),
    ),
    Route(
        operation="pause_topic",
        method="POST",
        path=f"{_TOPIC}/pause",
        rule=_MANAGE,
        summary="Pause a topic for every group that reads it",
        answers={200: {JSON: (shapes.GroupList,)}},
        problems=(404, 409),
    ),
    Route(
        operation="resume_topic",
        method="POST",
        path=f"{_TOPIC}/resume",
        rule=_MANAGE,
        summary="Go on with a topic in every group that reads it",
        answers={200: {JSON: (shapes.GroupList,)}},
        problems=(404, 409),
    ),
    Route(
        operation="topic_stats",
        method="GET",
        path=f"{_TOPIC}/stats",
        rule=_READ,
        summary="A topic's messages, and how far each of its groups is",
        answers={200: {JSON: (shapes.TopicStats,)}},
        problems=(404,),
    ),
)

DEAD_LETTERS: tuple[Route, ...] = (
    Route(
        operation="list_dead_letters",
        method="GET",
        path=_DEAD,
        rule=_READ,
        summary="List a group's dead letters",
        query=_DEAD_QUERY,
        answers={200: {JSON: (shapes.DeadLetterList,)}},
        problems=(404,),
    ),
    Route(
        operation="redrive",
        method="POST",
        path=f"{_DEAD}/redrive",
        # Not `publish` as well: what is appended is the group's own, and other groups do not see it.
        rule=_MANAGE,
        summary="Publish dead letters again for their group",
        body={JSON: (shapes.Redrive,)},
        example={"topic": "orders", "where": "error like '%timeout%'", "dry_run": True},
        answers={200: {JSON: (shapes.RedrivenShape,)}},
        problems=(404, 409),
    ),
    Route(
        operation="discard_dead_letters",
        method="POST",
        path=f"{_DEAD}/discard",
        rule=_MANAGE,
        summary="Give up dead letters",
        body={JSON: (shapes.DiscardDead,)},
        example={"topic": "orders"},
        answers={200: {JSON: (shapes.Discarded,)}},
        problems=(404, 409),
    ),
    Route(
        operation="describe_dead_letter",
        method="GET",
        path=f"{_DEAD}/{{message_id}}",
        rule=_READ,
        summary="A dead letter, with its message",
        answers={200: {JSON: (shapes.DeadLetterShape,)}},
        problems=(404,),
    ),
    Route(
        operation="retry_dead_letter",
        method="POST",
        path=f"{_DEAD}/{{message_id}}/retry",
        rule=_MANAGE,
        summary="Publish one dead letter again for its group",
        body={JSON: (shapes.Retry,)},
        example={"force": False},
        body_optional=True,
        answers={200: {JSON: (shapes.RedrivenShape,)}},
        problems=(404, 409),
    ),
    Route(
        operation="delete_dead_letter",
        method="DELETE",
        path=f"{_DEAD}/{{message_id}}",
        rule=_MANAGE,
        summary="Give up one dead letter",
        answers={204: {}},
        problems=(404, 409),
    ),
)
