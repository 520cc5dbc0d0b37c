"""The JSON bodies about dead letters, as structs that are checked while they are decoded.

As in `shapes`: durations are `_ms` integers, times RFC 3339 with an offset, an unknown field of a body is refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType

from lakelog.model.structs import Name, Text
from lakelog.wire.shapes import BodyShape, ReplyShape, ShownShape

MessageIds = Annotated[list[Annotated[str, Meta(max_length=120)]], Meta(min_length=1, max_length=10_000)]


class DeadLetterShape(ShownShape, frozen=True, kw_only=True, omit_defaults=True):
    """A dead letter, with its message as a fetch shows it. `error` is the last reason, `owner` the last owner."""

    topic: str
    partition: int
    epoch: int
    """The position epoch in which it died: after a seek a message may die once more."""
    state: str
    error: str
    deliveries: int
    failures: int
    dead_at: datetime
    owner: str
    lineage: str | None = None
    redriven_to: str | None = None
    """The id of the message that was appended for it."""
    traceback: str | None = None
    """The traceback of the last failure, as the worker sent it."""
    without_message: bool = False
    """The message was out of reach already when it was given up: only where it was is known."""


class DeadLetterList(ReplyShape, frozen=True, kw_only=True):
    dead_letters: list[DeadLetterShape]
    next: str | None = None


class Repaired(BodyShape, frozen=True, kw_only=True):
    """A value, headers, or both, to publish in place of the dead letter's own."""

    value: Raw | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    content_type: str | None = None
    headers: dict[str, str] | None = None


class Retry(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/dead-letters/{message_id}/retry. The body may be left out."""

    force: bool = False
    repaired: Repaired | None = None


class Redrive(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/dead-letters/redrive: by `message_ids`, or those that `topic` and `where` select."""

    message_ids: MessageIds | None = None
    topic: Name | None = None
    where: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
    dry_run: bool = False
    force: bool = False
    max_redrives: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    """A dead letter that was redriven this many times is refused, unless `force` is set."""
    values: dict[str, Repaired] | None = None


class RefusalShape(ReplyShape, frozen=True, kw_only=True):
    id: str
    reason: str


class RedrivenShape(ReplyShape, frozen=True, kw_only=True):
    """The result of a redrive or a dry run. `ids` and `refusals` are the first few; `has_more` means call again."""

    dry_run: bool
    redriven: int
    refused: int
    ids: list[str]
    refusals: list[RefusalShape]
    has_more: bool


class DiscardDead(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/dead-letters/discard: the same selection."""

    message_ids: MessageIds | None = None
    topic: Name | None = None
    where: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000


class Discarded(ReplyShape, frozen=True, kw_only=True):
    discarded: int
