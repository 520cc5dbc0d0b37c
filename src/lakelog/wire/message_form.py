"""The JSON of a message that is not simply fetched, such as a dead letter. It shows key and value as a fetch does."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from lakelog.model.json_values import shown_value, stored_value, text_of
from lakelog.wire.reply_form import ReplyForm

MessageT = TypeVar("MessageT", bound=Struct)
ShapeT = TypeVar("ShapeT", bound=Struct)

_SHOWN = ("key", "raw", "headers")


def message_form(shape: type[ShapeT], kind: type[MessageT]) -> ReplyForm[MessageT, ShapeT]:
    """Return the JSON of one kind of message, which has `key`, `raw`, `headers` and `content_type`.

    The shape has `key` or `key_base64`, `value` or `value_base64`, `headers`, and the other fields of the kind.
    """
    same = [name for name in kind.__struct_fields__ if name not in _SHOWN]

    def write(message: Any) -> ShapeT:
        key, shown = text_of(message.key), shown_value(message.raw, message.content_type)
        return shape(
            key=key,
            key_base64=message.key if key is None else None,
            value=UNSET if shown is None else Raw(msgspec.json.encode(shown)),
            value_base64=message.raw if shown is None else None,
            headers=dict(message.headers) or None,
            **{name: getattr(message, name) for name in same},
        )

    def read(found: Any) -> MessageT:
        value = found.value_base64
        if found.value is not UNSET and value is None:
            value, _ = stored_value(bytes(found.value), found.content_type)
        return kind(
            key=found.key_base64 if found.key is None else found.key.encode(),
            raw=value,
            headers=found.headers or {},
            **{name: getattr(found, name) for name in same},
        )

    return ReplyForm(shape=shape, write=write, read=read)
