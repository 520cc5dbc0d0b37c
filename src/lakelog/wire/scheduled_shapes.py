"""The JSON of scheduled messages, which shows the key and the value as a fetch does."""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET, Raw, Struct, UnsetType

from lakelog.model.scheduled import ScheduledMessage, ScheduledPage
from lakelog.wire.message_form import message_form
from lakelog.wire.reply_form import ReplyForm
from lakelog.wire.shapes import ReplyShape


class ScheduledShape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delayed message that waits. It has no offset until it is published."""

    id: str
    topic: str
    partition: int
    due_at: datetime
    scheduled_at: datetime
    key: str | None = None
    key_base64: bytes | None = None
    value: Raw | UnsetType = UNSET
    value_base64: bytes | None = None
    headers: dict[str, str] | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None


class ScheduledList(ReplyShape, frozen=True, kw_only=True):
    messages: list[ScheduledShape]
    next: str | None = None


SCHEDULED = message_form(ScheduledShape, ScheduledMessage)
PAGE = ReplyForm(
    shape=ScheduledList,
    write=lambda page: ScheduledList(messages=[SCHEDULED.write(each) for each in page.messages], next=page.next),
    read=lambda shape: ScheduledPage(messages=[SCHEDULED.read(each) for each in shape.messages], next=shape.next),
)
