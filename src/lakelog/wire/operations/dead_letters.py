"""The operations about dead letters."""

from __future__ import annotations

from typing import Any

from lakelog.model import limits
from lakelog.model.dead_letters import PurgedDeadLetters, PurgeDeadLettersRequest
from lakelog.wire import group_shapes as shapes
from lakelog.wire.operations.operation import JSON, MANAGE, NAME, READ, Audit, Media, Operation, Parameter, number

_GROUP = "/v1/groups/{group}"
_DEAD = f"{_GROUP}/dead-letters"


_DEAD_QUERY = (
    Parameter("topic", NAME, "Only dead letters of this topic."),
    Parameter("partition", number(0, limits.MAX_PARTITIONS - 1), "Only those of this partition."),
    Parameter("where", {"type": "string"}, "Only those that this filter lets through."),
    Parameter("state", {"enum": ["dead", "redriven", "discarded"], "default": "dead"}, "The state of dead letters."),
    Parameter("after", {"type": "string", "maxLength": 120}, "The `next` of the page before."),
    Parameter("limit", number(1, 1000, 100), "The most dead letters to return."),
)

PURGE_DEAD_LETTERS = Operation(
    name="purge_dead_letters",
    method="POST",
    path=f"{_DEAD}/purge",
    rights=MANAGE,
    summary="Delete redriven and discarded dead letters that died some time ago",
    request=PurgeDeadLettersRequest,
    reply=PurgedDeadLetters,
    example={"older_than_ms": 604_800_000},
    audit=Audit(text="purged finished dead letters of group {group}", result="purged"),
    problems=(404,),
)

DEAD_LETTERS: tuple[Operation[Any, Any], ...] = (
    Operation(
        name="list_dead_letters",
        method="GET",
        path=_DEAD,
        rights=READ,
        summary="List a group's dead letters",
        problems=(404,),
        media=Media(replies={200: {JSON: (shapes.DeadLetterList,)}}, query=_DEAD_QUERY),
    ),
    Operation(
        name="redrive",
        method="POST",
        path=f"{_DEAD}/redrive",
        rights=MANAGE,
        summary="Publish dead letters again for their group",
        example={"topic": "orders", "where": "error like '%timeout%'", "dry_run": True},
        problems=(404, 409),
        audit=Audit(text="redrove dead letters of group {group}"),
        media=Media(replies={200: {JSON: (shapes.RedrivenShape,)}}, body={JSON: (shapes.Redrive,)}),
    ),
    Operation(
        name="discard_dead_letters",
        method="POST",
        path=f"{_DEAD}/discard",
        rights=MANAGE,
        summary="Give up dead letters",
        example={"topic": "orders"},
        problems=(404, 409),
        audit=Audit(text="discarded dead letters of group {group}"),
        media=Media(replies={200: {JSON: (shapes.Discarded,)}}, body={JSON: (shapes.DiscardDead,)}),
    ),
    PURGE_DEAD_LETTERS,
    Operation(
        name="describe_dead_letter",
        method="GET",
        path=f"{_DEAD}/{{message_id}}",
        rights=READ,
        summary="A dead letter, with its message",
        problems=(404,),
        media=Media(replies={200: {JSON: (shapes.DeadLetterShape,)}}),
    ),
    Operation(
        name="retry_dead_letter",
        method="POST",
        path=f"{_DEAD}/{{message_id}}/retry",
        rights=MANAGE,
        summary="Publish one dead letter again for its group",
        example={"force": False},
        problems=(404, 409),
        audit=Audit(text="redrove dead letter {message_id} of group {group}"),
        media=Media(
            replies={200: {JSON: (shapes.RedrivenShape,)}}, body={JSON: (shapes.Retry,)}, is_body_optional=True
        ),
    ),
    Operation(
        name="delete_dead_letter",
        method="DELETE",
        path=f"{_DEAD}/{{message_id}}",
        rights=MANAGE,
        summary="Give up one dead letter",
        problems=(404, 409),
        audit=Audit(text="discarded dead letter {message_id} of group {group}"),
        media=Media(replies={204: {}}),
    ),
)
