"""The JSON of scheduled messages, which shows the key and the value as a fetch does."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from lakelog.model.json_values import shown_value, stored_value, text_of
from lakelog.model.scheduled import ScheduledMessage, ScheduledPage
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


_SHOWN = ("key", "raw", "headers")
_SAME = tuple(name for name in ScheduledMessage.__struct_fields__ if name not in _SHOWN)


def to_shape(message: ScheduledMessage) -> ScheduledShape:
    """Return the JSON of a scheduled message."""
    key, shown = text_of(message.key), shown_value(message.raw, message.content_type)
    return ScheduledShape(
        key=key,
        key_base64=message.key if key is None else None,
        value=UNSET if shown is None else Raw(msgspec.json.encode(shown)),
        value_base64=message.raw if shown is None else None,
        headers=dict(message.headers) or None,
        **{name: getattr(message, name) for name in _SAME},
    )


def _message(shape: ScheduledShape) -> ScheduledMessage:
    value = shape.value_base64
    if shape.value is not UNSET and value is None:
        value, _ = stored_value(bytes(shape.value), shape.content_type)
    return ScheduledMessage(
        key=shape.key_base64 if shape.key is None else shape.key.encode(),
        raw=value,
        headers=shape.headers or {},
        **{name: getattr(shape, name) for name in _SAME},
    )


PAGE = ReplyForm(
    shape=ScheduledList,
    write=lambda page: ScheduledList(messages=[to_shape(each) for each in page.messages], next=page.next),
    read=lambda shape: ScheduledPage(messages=[_message(each) for each in shape.messages], next=shape.next),
)
