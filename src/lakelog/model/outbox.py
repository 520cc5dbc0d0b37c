"""Outboxes: the ids of their messages, and the messages that the log refused.

An outbox is a schema in an application's database. Messages are written to it in the application's transaction, and a
relay moves them to the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from lakelog.model.structs import MessageId, Name, Request, Value

MAX_REJECTED_PAGE = 1000
MAX_REJECTED = 10_000
"""The most rejected messages that one call publishes again or discards."""
_ID = re.compile(r"outbox-([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,10})", re.ASCII)


class OutboxMessageId(NamedTuple):
    """The id of a message in an outbox. `str` returns the text that the publisher gets.

    Attributes:
        outbox: The id of the outbox.
        number: The number of the message, in the order of publishing.
        salt: A random number. A database that was restored from a backup may use a number twice.
    """

    outbox: int
    number: int
    salt: int

    def __str__(self) -> str:
        return f"outbox-{self.outbox}-{self.number}-{self.salt}"


def parse_outbox_message_id(text: str) -> OutboxMessageId | None:
    """Return the parts of the id of a message in an outbox, or None if the text has another form."""
    match = _ID.fullmatch(text)
    return OutboxMessageId(*(int(part) for part in match.groups())) if match else None


class RejectionSource(StrEnum):
    """How a rejected message was published.

    Attributes:
        OUTBOX: In a transaction of an application's database.
        SCHEDULED: With a delay.
    """

    OUTBOX = "outbox"
    SCHEDULED = "scheduled"


class RejectedMessage(Value, frozen=True, kw_only=True):
    """A message that was published and that the log refused later, with the reason.

    Attributes:
        id: The id that the publisher got.
        source: "outbox" or "scheduled".
        topic: The topic to which the message was published.
        code: The code of the error, such as `topic_not_found`.
        reason: The error.
        at: When the log refused the message.
        partition: The partition that the publisher chose; None if it chose none.
        key: The key, as bytes; None if the message has none.
        raw: The value, as bytes; None if the message has no value.
        headers: The headers, text by name.
        content_type: The content type of the value.
        correlation_id: The correlation id that the publisher gave; None if it gave none.
        created_at: When the message was published.
        expires_at: When the message expires; None if it does not.
        idempotency_key: The idempotency key that the publisher gave; None if it gave none.
    """

    id: str
    source: RejectionSource
    topic: str
    code: str
    reason: str
    at: datetime
    partition: int | None = None
    key: bytes | None = None
    raw: bytes | None = None
    headers: Mapping[str, str] = {}
    content_type: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None


class RejectedPage(Value, frozen=True, kw_only=True):
    """Rejected messages, the oldest first. `next` is where the next page begins, None at the end."""

    messages: Sequence[RejectedMessage]
    next: int | None = None


class RejectedQuery(Request, frozen=True, kw_only=True):
    """A request for rejected messages, of one topic or of all."""

    topic: Annotated[Name, Meta(description="Only messages of this topic.")] | None = None
    after: Annotated[int, Meta(ge=0, description="The `next` of the previous page.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_REJECTED_PAGE, description="The largest number of messages to return.")] = (
        100
    )


class RejectedChange(Request, frozen=True, kw_only=True):
    """A request to publish again, or to discard, rejected messages: those with the ids, or the oldest of a topic."""

    message_ids: Annotated[Sequence[MessageId], Meta(max_length=MAX_REJECTED_PAGE)] = ()
    topic: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_REJECTED)] = MAX_REJECTED_PAGE


class RejectedChanged(Value, frozen=True, kw_only=True):
    """The outcome of a change.

    Attributes:
        changed: The number of messages that were published or discarded.
        refused: The number of messages that the log refused again. They stay in the list, with the new reason.
        reason: The reason of the first refusal; None if there was none.
    """

    changed: int
    refused: int = 0
    reason: str | None = None


class MessageQuery(Request, frozen=True, kw_only=True):
    """A request for the position of a message."""

    message_id: MessageId


class MessageStatus(Value, frozen=True, kw_only=True):
    """Whether a message is in the log, and where.

    Attributes:
        id: The id that was asked for.
        state: "published", "scheduled" if it is delayed, "rejected", or "unknown". A message of an outbox is unknown
            before the relay has moved it, if its transaction was rolled back, and a day after it was published.
        partition: The number of the partition; None if the message is not published.
        offset: The offset in the partition; None if the message is not published.
    """

    id: str
    state: Literal["published", "scheduled", "rejected", "unknown"]
    partition: int | None = None
    offset: int | None = None
