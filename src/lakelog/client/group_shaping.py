"""Between the client's values about groups and the shapes of HTTP."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from lakelog.client.group_values import ConsumeWish, DeadLetter, JoinWish, Redriven, RedriveWish
from lakelog.errors import LakelogError
from lakelog.model.group import (
    GroupWish,
    NoStart,
    Start,
)
from lakelog.model.lease import Answered, LeaseAnswer
from lakelog.model.position import AtOffset, AtTime, Earliest
from lakelog.wire import consume_shapes, group_shapes, problems


def consume_shape(wish: ConsumeWish) -> consume_shapes.Consume:
    return consume_shapes.Consume(
        topic=wish.topic,
        group=wish.group,
        owner=wish.owner,
        max_messages=wish.max_messages,
        lease_ms=wish.lease_ms,
        wait_ms=int(wish.wait_seconds * 1000),
        member_id=wish.member_id,
        generation=wish.generation,
        request_id=wish.request_id,
        isolates=wish.isolates,
        answers=compact(wish.answers),
        start_from=_start(wish.wish.start),
        **_settings(wish.wish),
    )


def join_shape(wish: JoinWish) -> group_shapes.Join:
    return group_shapes.Join(
        topics=list(wish.topics),
        member_id=wish.member_id,
        session_timeout_ms=wish.session_ms,
        kind=None if wish.wish.kind is None else wish.wish.kind.value,
        client=wish.client,
        replace=wish.replace,
        start_from=_start(wish.wish.start),
        **_settings(wish.wish),
    )


def compact(answers: Sequence[LeaseAnswer]) -> tuple[LeaseAnswer, ...]:
    """Return the answers with runs of offsets instead of single ones, so that bodies are small."""
    return tuple(each if len(each.offsets) < 2 else _compact(each) for each in answers)


def _compact(answer: LeaseAnswer) -> LeaseAnswer:
    runs = ((first, end - 1) for first, end in answer.ranges)
    return msgspec.structs.replace(
        answer, offsets=tuple(first if first == last else (first, last) for first, last in runs)
    )


def answered_of(result: consume_shapes.AnswerResult) -> Answered | LakelogError:
    if result.error is not None:
        return problems.error_of(result.error)
    expires_ms = None if result.expires_at is None else round(result.expires_at.timestamp() * 1000)
    return Answered(
        expires_ms=expires_ms,
        dead=tuple(result.dead or ()),
        retry_in_ms=result.retry_in_ms,
        max_attempts=result.max_attempts,
    )


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
        state=shape.state,
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
        refusals=tuple((refusal.id, refusal.reason) for refusal in shape.refusals),
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


def _settings(wish: GroupWish) -> dict[str, Any]:
    return {
        "order": None if wish.order is None else wish.order.value,
        "filter": wish.filter,
        "retries": wish.retries,
        "dead_letter": wish.dead_letter,
        "assignor": None if wish.assignor is None else wish.assignor.value,
        "window": wish.window,
    }


def _start(start: Start | None) -> int | str | None:
    if start is None or isinstance(start, NoStart):
        return None if start is None else "none"
    if isinstance(start, AtOffset):
        return start.offset
    if isinstance(start, AtTime):
        time: datetime = start.time
        return time.isoformat()
    return "earliest" if isinstance(start, Earliest) else "latest"
