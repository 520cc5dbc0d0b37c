"""The JSON of rejected messages, which shows the key and the value of the message as a fetch does."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from lakelog.model.json_values import shown_value, stored_value, text_of
from lakelog.model.outbox import RejectedMessage, RejectedPage, RejectionSource
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


_SHOWN = ("key", "raw", "headers")
_SAME = tuple(name for name in RejectedMessage.__struct_fields__ if name not in _SHOWN)


def rejected_shape(message: RejectedMessage) -> RejectedShape:
    """Return the JSON of a rejected message."""
    key, shown = text_of(message.key), shown_value(message.raw, message.content_type)
    return RejectedShape(
        key=key,
        key_base64=message.key if key is None else None,
        value=UNSET if shown is None else Raw(msgspec.json.encode(shown)),
        value_base64=message.raw if shown is None else None,
        headers=dict(message.headers) or None,
        **{name: getattr(message, name) for name in _SAME},
    )


def rejected_of(shape: RejectedShape) -> RejectedMessage:
    """Return the rejected message that JSON shows."""
    value = shape.value_base64
    if shape.value is not UNSET and value is None:
        value, _ = stored_value(bytes(shape.value), shape.content_type)
    return RejectedMessage(
        key=shape.key_base64 if shape.key is None else shape.key.encode(),
        raw=value,
        headers=shape.headers or {},
        **{name: getattr(shape, name) for name in _SAME},
    )


PAGE = ReplyForm(
    shape=RejectedList,
    write=lambda page: RejectedList(messages=[rejected_shape(each) for each in page.messages], next=page.next),
    read=lambda shape: RejectedPage(messages=[rejected_of(each) for each in shape.messages], next=shape.next),
)
