"""Scheduled messages: the requests about delayed messages that wait, and the replies."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from lakelog.model.structs import MessageId, Name, Request, Value

MAX_LISTED = 1000
"""The largest number of scheduled messages on one page."""


class ScheduledQuery(Request, frozen=True, kw_only=True):
    """A request for messages of a topic that wait, the earliest first."""

    topic: Name
    after: Annotated[str, Meta(max_length=120, description="The `next` of the previous page.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LISTED, description="The largest number of messages to return.")] = 100


class CancelRequest(Request, frozen=True, kw_only=True):
    """A request to cancel a message that waits."""

    topic: Name
    message_id: MessageId


class ScheduledMessage(Value, frozen=True, kw_only=True):
    """A delayed message that waits.

    Attributes:
        id: The id of the receipt, by which the message can be cancelled.
        topic: The name of the topic.
        partition: The partition to which it is published when it is due.
        due_at: When it is due, in the database's time.
        scheduled_at: When it was scheduled, in the database's time.
        key: The key, or None.
        raw: The encoded value, or None.
        headers: Text by name.
        content_type: The content type of the value, or None.
        correlation_id: A text that readers see beside the value, or None.
        idempotency_key: A text that identifies the message in its topic, or None.
    """

    id: str
    topic: str
    partition: int
    due_at: datetime
    scheduled_at: datetime
    key: bytes | None = None
    raw: bytes | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    content_type: str | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None

    def __repr__(self) -> str:
        return f"ScheduledMessage(id={self.id!r}, due_at={self.due_at.isoformat()}, key={self.key!r})"


class ScheduledPage(Value, frozen=True, kw_only=True):
    """Scheduled messages by due time. `next` is the `after` of the next page; None at the end."""

    messages: list[ScheduledMessage]
    next: str | None = None


class CancelledMessage(Value, frozen=True, kw_only=True):
    """The result of a cancellation.

    Attributes:
        id: The id of the delayed message.
        cancelled: Whether the message is cancelled. If not, it is published, or was refused when it was due.
        partition: The partition of the message.
        offset: The offset of the published message, or None.
    """

    id: str
    cancelled: bool
    partition: int
    offset: int | None = None
