"""Between the client's values about dead letters and the shapes of HTTP."""

from __future__ import annotations

import base64
from datetime import datetime

import msgspec
from msgspec import UNSET

from lakelog.client.group_values import RedriveWish
from lakelog.model.dead_letters import DeadLetter, Redriven, RefusedDeadLetter
from lakelog.model.kinds import DeadLetterState
from lakelog.wire import group_shapes


class DeadLetterReply(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded `DeadLetterShape`. The content type says whether a value was text or JSON."""

    id: str
    topic: str
    partition: int
    offset: int
    error: str
    deliveries: int
    failures: int
    dead_at: datetime
    owner: str
    state: str
    key: str | None = None
    key_base64: str | None = None
    value: msgspec.Raw = msgspec.Raw(b"null")
    value_base64: str | None = None
    headers: dict[str, str] | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None
    epoch: int = 0
    lineage: str | None = None
    redriven_to: str | None = None
    traceback: str | None = None


class DeadLettersReply(msgspec.Struct, frozen=True, kw_only=True):
    dead_letters: list[DeadLetterReply]
    next: str | None = None


def dead_of(shape: DeadLetterReply) -> DeadLetter:
    key = base64.b64decode(shape.key_base64) if shape.key_base64 is not None else None
    return DeadLetter(
        id=shape.id,
        topic=shape.topic,
        partition=shape.partition,
        offset=shape.offset,
        error=shape.error,
        deliveries=shape.deliveries,
        failures=shape.failures,
        at=shape.dead_at,
        owner=shape.owner,
        state=DeadLetterState(shape.state),
        key=shape.key.encode() if shape.key is not None else key,
        raw=_raw_value(shape),
        headers=shape.headers or {},
        content_type=shape.content_type,
        correlation_id=shape.correlation_id,
        created_at=shape.created_at,
        epoch=shape.epoch,
        lineage=shape.lineage,
        redriven_to=shape.redriven_to,
        traceback=shape.traceback,
    )


def _raw_value(shape: DeadLetterReply) -> bytes | None:
    if shape.value_base64 is not None:
        return base64.b64decode(shape.value_base64)
    raw = bytes(shape.value)
    if raw == b"null":
        return None
    is_text = raw[:1] == b'"' and (shape.content_type or "").startswith("text/")
    return msgspec.json.decode(raw, type=str).encode() if is_text else raw


def redriven_of(shape: group_shapes.RedrivenShape) -> Redriven:
    return Redriven(
        redriven=shape.redriven,
        refused=shape.refused,
        ids=tuple(shape.ids),
        refusals=tuple(RefusedDeadLetter(id=each.id, reason=each.reason) for each in shape.refusals),
        has_more=shape.has_more,
        dry_run=shape.dry_run,
    )


def redrive_shape(wish: RedriveWish) -> group_shapes.Redrive:
    values = {
        message_id: group_shapes.Repaired(
            value_base64=UNSET if repair.value is None else base64.b64encode(repair.value).decode(),
            content_type=repair.content_type,
            headers=None if repair.headers is None else dict(repair.headers),
        )
        for message_id, repair in (wish.repaired or {}).items()
    }
    return group_shapes.Redrive(
        message_ids=None if wish.message_ids is None else list(wish.message_ids),
        topic=wish.topic,
        where=wish.where,
        limit=wish.limit,
        dry_run=wish.dry_run,
        force=wish.force,
        max_redrives=wish.max_redrives,
        values=values or None,
    )
