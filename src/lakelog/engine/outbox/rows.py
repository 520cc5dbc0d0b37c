"""The messages of an outbox's rows, and the positions and errors of publishing them. The module writes nothing."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable
from lakelog.model.limits import MAX_EXPIRES_MS
from lakelog.model.message import MARK_BYTES, Message, Schedule, parse_message_id, parse_scheduled_id, partition_id
from lakelog.model.outbox import OutboxMessageId
from lakelog.model.position import Receipt, ScheduledReceipt
from lakelog.storage.outbox import NO_OFFSET, OutboxRow


def is_plain_row(row: OutboxRow) -> bool:
    """Return whether the relay appends the message itself."""
    return row.idempotency_key is None and row.deliver_at is None


def position_of(receipt: Receipt) -> tuple[int, int]:
    """Return the partition id and the offset of a receipt; `NO_OFFSET` for a delayed message."""
    if isinstance(receipt, ScheduledReceipt):
        incarnation, partition, _ = parse_scheduled_id(receipt.id)
        return partition_id(incarnation, partition), NO_OFFSET
    incarnation, partition, offset = parse_message_id(receipt.id)
    return partition_id(incarnation, partition), offset


def scheduled_message(outbox_id: int, row: OutboxRow) -> Message:
    """Return the message with its schedule. Its mark recognises the message if it is scheduled again.

    A relative expiry of a delayed message counts from the delivery.
    """
    message = to_message(row)
    if row.deliver_at is not None:
        mark = scheduled_mark(OutboxMessageId(outbox_id, *row.mark))
        message.schedule = Schedule(deliver_at=row.deliver_at, mark=mark)
        if row.expires_at is None and row.expires_ms is not None:
            message.expires_at, message.expires_ms = None, min(max(0, row.expires_ms), MAX_EXPIRES_MS)
    return message


def scheduled_mark(message_id: OutboxMessageId) -> bytes:
    """Return the mark with which a delayed message without an idempotency key is scheduled."""
    return hashlib.blake2b(str(message_id).encode(), digest_size=MARK_BYTES).digest()


def to_message(row: OutboxRow) -> Message:
    """Return the message of a row. A relative expiry counts from the time of publishing."""
    expires_at = row.expires_at
    if expires_at is None and row.expires_ms is not None:
        try:
            expires_at = row.created_at + timedelta(milliseconds=row.expires_ms)
        except OverflowError:
            expires_at = None
    return Message(
        value=row.value,
        key=row.key,
        headers=row.headers,
        content_type=row.content_type,
        correlation_id=row.correlation_id,
        created_at=row.created_at,
        expires_at=expires_at,
        partition=row.partition,
        idempotency_key=row.idempotency_key,
    )


def storable_message(row: OutboxRow) -> Message:
    """Return the message of a row that was refused, with headers that can be encoded."""
    message = to_message(row)
    if message.headers is not None:
        message.headers = {str(name): str(text) for name, text in message.headers.items()}
    return message


def definite(error: LakelogError) -> LakelogError:
    """Return the error if a retry cannot help, and raise it otherwise."""
    if error.retryable or isinstance(error, Unavailable | OutcomeUnknown):
        raise error
    return error
