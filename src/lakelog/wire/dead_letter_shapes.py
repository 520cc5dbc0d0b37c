"""The JSON of dead letters, which shows the key and the value of the message as a fetch does."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, UnsetType

from lakelog.model.dead_letters import DeadLetter, DeadLetterPage
from lakelog.model.json_values import shown_value, stored_value, text_of
from lakelog.model.kinds import DeadLetterState
from lakelog.wire.reply_form import ReplyForm
from lakelog.wire.shapes import ReplyShape, ShownShape


class DeadLetterShape(ShownShape, frozen=True, kw_only=True, omit_defaults=True):
    """A dead letter, with the fields of a fetched message. `error` is the last reason, `owner` the last owner."""

    value: Raw | UnsetType = UNSET  # type: ignore[assignment]  # narrower than its base, so that it can be decoded
    topic: str
    partition: int
    epoch: int
    """The position epoch in which the message died. After a seek, a message may die again."""
    state: DeadLetterState
    error: str
    deliveries: int
    failures: int
    at: datetime = msgspec.field(name="dead_at")
    owner: str
    lineage: str | None = None
    redriven_to: str | None = None
    """The id of the message that a redrive appended."""
    traceback: str | None = None
    """The traceback of the last failure, as the worker sent it."""
    without_message: bool = False
    """The message could not be read when it died: only its position is known."""


class DeadLetterList(ReplyShape, frozen=True, kw_only=True):
    dead_letters: list[DeadLetterShape]
    next: str | None = None


_SHOWN = ("key", "raw", "headers")
_SAME = tuple(name for name in DeadLetter.__struct_fields__ if name not in _SHOWN)


def letter_shape(letter: DeadLetter) -> DeadLetterShape:
    """Return the JSON of a dead letter."""
    key, shown = text_of(letter.key), shown_value(letter.raw, letter.content_type)
    return DeadLetterShape(
        key=key,
        key_base64=letter.key if key is None else None,
        value=UNSET if shown is None else Raw(msgspec.json.encode(shown)),
        value_base64=letter.raw if shown is None else None,
        headers=dict(letter.headers) or None,
        **{name: getattr(letter, name) for name in _SAME},
    )


def letter_of(shape: DeadLetterShape) -> DeadLetter:
    """Return the dead letter that JSON shows."""
    value = shape.value_base64
    if shape.value is not UNSET and value is None:
        value, _ = stored_value(bytes(shape.value), shape.content_type)
    return DeadLetter(
        key=shape.key_base64 if shape.key is None else shape.key.encode(),
        raw=value,
        headers=shape.headers or {},
        **{name: getattr(shape, name) for name in _SAME},
    )


LETTER = ReplyForm(shape=DeadLetterShape, write=letter_shape, read=letter_of)
PAGE = ReplyForm(
    shape=DeadLetterList,
    write=lambda page: DeadLetterList(dead_letters=[letter_shape(each) for each in page.letters], next=page.next),
    read=lambda shape: DeadLetterPage(letters=[letter_of(each) for each in shape.dead_letters], next=shape.next),
)
