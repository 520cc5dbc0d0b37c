"""The JSON bodies of consume and of the answers to leases, as structs that are checked while they are decoded.

As in `shapes`: durations are `_ms` integers, times RFC 3339 with an offset, an unknown field of a body is refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from lakelog.model import limits
from lakelog.model.group import (
    DEFAULT_LEASE_MS,
)
from lakelog.model.lease import DelayMs, LeaseAnswer, LeaseMs, Offsets
from lakelog.model.retries import RetryPolicy
from lakelog.model.structs import Identity, Name, Natural, PartitionNumber, Text
from lakelog.wire.shapes import BodyShape, FetchedShape, ReplyShape

WaitMs = Annotated[int, Meta(ge=0, le=limits.MAX_WAIT_MS)]
MaxMessages = Annotated[int, Meta(ge=1, le=limits.MAX_BATCH_MESSAGES)]


class SettingsShape(BodyShape, frozen=True, kw_only=True):
    """The settings of a group that a caller states; omitted settings are not stated. PATCH /v1/groups/{group}"""

    order: Literal["key", "partition", "none"] | None = None
    filter: Text | None = None
    retries: RetryPolicy | None = None
    dead_letter: bool | None = None
    assignor: Literal["range", "round-robin", "sticky", "cooperative-sticky"] | None = None
    window: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class WishShape(SettingsShape, frozen=True, kw_only=True):
    """The same of a caller that makes the group if there is none. `start_from` counts in topics not read before.

    It is `earliest`, `latest`, `none` (wait for a seek), an offset, or a time.
    """

    start_from: Natural | Annotated[str, Meta(max_length=40)] | None = None


LeaseAnswers = Annotated[tuple[LeaseAnswer, ...], Meta(min_length=1, max_length=limits.MAX_BATCH_MESSAGES)]


class Consume(WishShape, frozen=True, kw_only=True):
    """POST /v1/consume. `answers` are decided first, together with the take; the call then does not wait."""

    topic: Name
    group: Name
    owner: Identity
    max_messages: MaxMessages = 1
    lease_ms: LeaseMs = DEFAULT_LEASE_MS
    wait_ms: WaitMs = 0
    member_id: Identity | None = None
    generation: Natural | None = None
    request_id: Identity | None = None
    isolates: bool = False
    answers: LeaseAnswers = ()


class Push(WishShape, frozen=True, kw_only=True):
    """The query of GET /v1/consume. Retries cannot be stated in it."""

    topic: Name
    group: Name
    owner: Identity
    max_in_flight: MaxMessages = 1
    lease_ms: LeaseMs = DEFAULT_LEASE_MS
    member_id: Identity | None = None
    generation: Natural | None = None


class LeasedShape(FetchedShape, frozen=True, kw_only=True, omit_defaults=True):
    """One leased message: as a fetch shows it, and how often it was delivered (this time included) and failed."""

    delivery: int
    failures: int


class LeaseShape(ReplyShape, frozen=True, kw_only=True):
    """Messages of one partition that the owner holds until `expires_at`, in the order in which to run them."""

    token: int
    partition: int
    expires_at: datetime
    suspect: bool
    messages: list[LeasedShape]


class AnswerResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one answer; `dead` are the offsets that became dead letters.

    For a nack, `retry_in_ms` is the time until the next attempt, and `max_attempts` the group's limit of failures.
    """

    ok: bool = False
    expires_at: datetime | None = None
    dead: list[int] | None = None
    retry_in_ms: int | None = None
    max_attempts: int | None = None
    error: dict[str, Any] | None = None


class ConsumeReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """No lease when there was nothing in time. `generation` is answered to a call that named a member.

    `answered` has the outcome of each of the call's `answers`, in order.
    """

    leases: list[LeaseShape]
    generation: int | None = None
    answered: list[AnswerResult] | None = None


class PushedShape(LeasedShape, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a pushed stream, with its lease."""

    topic: str
    group: str
    partition: int
    token: int
    lease_expires_at: datetime
    suspect: bool = False


class Ack(BodyShape, frozen=True, kw_only=True):
    """POST /v1/ack. `partition` may be left out where the topic has one; `offset` or `offsets` is needed."""

    topic: Name
    group: Name
    owner: Identity
    partition: PartitionNumber | None = None
    token: Natural | None = None
    offset: Natural | None = None
    offsets: Offsets = ()
    generation: Natural | None = None


class AckCumulative(BodyShape, frozen=True, kw_only=True):
    """POST /v1/ack-cumulative: all of the lease up to and including the offset."""

    topic: Name
    group: Name
    owner: Identity
    offset: Natural
    partition: PartitionNumber | None = None
    token: Natural | None = None
    generation: Natural | None = None


class Nack(Ack, frozen=True, kw_only=True):
    """POST /v1/nack. `counted` is a failure, `uncounted` gives back, `fatal` goes straight to the dead letters.

    A dead letter keeps the `traceback`, up to 8 KiB: of a longer one the beginning and the end.
    """

    delay_ms: DelayMs | None = None
    reason: Text = ""
    traceback: Text | None = None
    kind: Literal["counted", "uncounted", "fatal"] = "counted"


class Discard(Ack, frozen=True, kw_only=True):
    """POST /v1/discard"""

    reason: Text = ""


class Extend(Ack, frozen=True, kw_only=True):
    """POST /v1/extend: the whole lease, named by its token or by an offset. `alone`: its suspect now runs alone."""

    lease_ms: LeaseMs = DEFAULT_LEASE_MS
    alone: bool = False


class Extended(ReplyShape, frozen=True, kw_only=True):
    expires_at: datetime


class Answers(BodyShape, frozen=True, kw_only=True):
    """POST /v1/topics/{topic}/groups/{group}/answers"""

    owner: Identity
    answers: LeaseAnswers
    generation: Natural | None = None


class AnswersAnswer(ReplyShape, frozen=True, kw_only=True):
    results: list[AnswerResult]
