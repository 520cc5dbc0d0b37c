"""The JSON bodies about groups, members and dead letters, as structs that are checked while they are decoded.

The conventions are those of `shapes`: durations are `_ms` integers, times are RFC 3339 with an offset, and an unknown
field of a body is refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from lakelog.model.group import DEFAULT_SESSION_MS, MAX_SESSION_MS, MIN_SESSION_MS
from lakelog.model.structs import Identity, Name, Text
from lakelog.wire.consume_shapes import WishShape
from lakelog.wire.shapes import BodyShape, ReplyShape, ShownShape

MessageIds = Annotated[list[Annotated[str, Meta(max_length=120)]], Meta(min_length=1, max_length=10_000)]


class Join(WishShape, frozen=True, kw_only=True):
    """The body of POST /v1/groups/{group}/join."""

    topics: Annotated[list[Name], Meta(min_length=1, max_length=1000)]
    member_id: Identity | None = None
    session_timeout_ms: Annotated[int, Meta(ge=MIN_SESSION_MS, le=MAX_SESSION_MS)] = DEFAULT_SESSION_MS
    kind: Literal["lease", "cursor"] | None = None
    client: Annotated[str, Meta(pattern="^[A-Za-z0-9._ -]{1,60}$")] | None = None
    """The kind of program that joins; shown with its address."""
    replace: bool = False
    """True to make all other members leave in the same change."""


class DeadLetterShape(ShownShape, frozen=True, kw_only=True, omit_defaults=True):
    """A dead letter, with the fields of a fetched message. `error` is the last reason, `owner` the last owner."""

    topic: str
    partition: int
    epoch: int
    """The position epoch in which the message died. After a seek, a message may die again."""
    state: str
    error: str
    deliveries: int
    failures: int
    dead_at: datetime
    owner: str
    lineage: str | None = None
    redriven_to: str | None = None
    """The id of the message that a redrive appended."""
    traceback: str | None = None
    """The traceback of the last failure, as the worker sent it."""
    without_message: bool = False
    """True if the message could not be read when it became a dead letter. Only its position is known."""


class DeadLetterList(ReplyShape, frozen=True, kw_only=True):
    dead_letters: list[DeadLetterShape]
    next: str | None = None


class Repaired(BodyShape, frozen=True, kw_only=True):
    """A value, headers, or both, to publish instead of those of the dead letter."""

    value: Raw | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    content_type: str | None = None
    headers: dict[str, str] | None = None


class Retry(BodyShape, frozen=True, kw_only=True):
    """The body of POST /v1/groups/{group}/dead-letters/{message_id}/retry. It may be omitted."""

    force: bool = False
    repaired: Repaired | None = None


class Redrive(BodyShape, frozen=True, kw_only=True):
    """The body of POST /v1/groups/{group}/dead-letters/redrive.

    It selects by `message_ids`, or by `topic` and `where`.
    """

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
    """The result of a redrive or a dry run. `ids` and `refusals` are the first few. If `has_more`, repeat the call."""

    dry_run: bool
    redriven: int
    refused: int
    ids: list[str]
    refusals: list[RefusalShape]
    has_more: bool


class DiscardDead(BodyShape, frozen=True, kw_only=True):
    """The body of POST /v1/groups/{group}/dead-letters/discard. It selects like `Redrive`."""

    message_ids: MessageIds | None = None
    topic: Name | None = None
    where: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000


class Discarded(ReplyShape, frozen=True, kw_only=True):
    discarded: int
