"""The JSON of rejected messages, which shows the key and the value of the message as a fetch does."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from lakelog.model.outbox import RejectedMessage, RejectedPage, RejectionSource
from lakelog.wire.message_form import message_form
from lakelog.wire.reply_form import ReplyForm
from lakelog.wire.shapes import ReplyShape


class RejectedShape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rejected message. JSON and text values are in `value`, other bytes in `value_base64`."""

    id: str
    source: RejectionSource
    topic: str
    code: str
    reason: str
    at: datetime = msgspec.field(name="rejected_at")
    partition: int | None = None
    key: str | None = None
    key_base64: bytes | None = None
    value: Raw | UnsetType = UNSET
    value_base64: bytes | None = None
    headers: dict[str, str] | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None


class RejectedList(ReplyShape, frozen=True, kw_only=True):
    messages: list[RejectedShape]
    next: int | None = None


REJECTED = message_form(RejectedShape, RejectedMessage)
PAGE = ReplyForm(
    shape=RejectedList,
    write=lambda page: RejectedList(messages=[REJECTED.write(each) for each in page.messages], next=page.next),
    read=lambda shape: RejectedPage(messages=[REJECTED.read(each) for each in shape.messages], next=shape.next),
)
