"""The JSON of dead letters, which shows the key and the value of the message as a fetch does."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, UnsetType

from lakelog.model.dead_letters import DeadLetter, DeadLetterPage
from lakelog.model.kinds import DeadLetterState
from lakelog.wire.message_form import message_form
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


LETTER = message_form(DeadLetterShape, DeadLetter)
PAGE = ReplyForm(
    shape=DeadLetterList,
    write=lambda page: DeadLetterList(dead_letters=[LETTER.write(each) for each in page.letters], next=page.next),
    read=lambda shape: DeadLetterPage(letters=[LETTER.read(each) for each in shape.dead_letters], next=shape.next),
)
