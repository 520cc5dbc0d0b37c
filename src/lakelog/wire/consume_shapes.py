"""The JSON bodies of consume and of the answers to leases, as structs that are checked while they are decoded.

The conventions are those of `shapes`: durations are `_ms` integers, times are RFC 3339 with an offset, and an unknown
field of a body is refused.
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
    """The settings of a group in a request. An omitted setting does not change, and accepts any."""

    order: Literal["key", "partition", "none"] | None = None
    filter: Text | None = None
    retries: RetryPolicy | None = None
    dead_letter: bool | None = None
    assignor: Literal["range", "round-robin", "sticky", "cooperative-sticky"] | None = None
    window: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class WishShape(SettingsShape, frozen=True, kw_only=True):
    """The settings of a group in a request that creates a missing group.

    `start_from` applies to topics not read before.

    `start_from` is `earliest`, `latest`, `none` (wait for a seek), an offset, or a time.
    """

    start_from: Natural | Annotated[str, Meta(max_length=40)] | None = None


LeaseAnswers = Annotated[tuple[LeaseAnswer, ...], Meta(min_length=1, max_length=limits.MAX_BATCH_MESSAGES)]


class Consume(WishShape, frozen=True, kw_only=True):
    """The body of POST /v1/consume. `answers` are decided first, in the same commit; the call then does not wait."""

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
    """The query of GET /v1/consume. It has no field for retries."""

    topic: Name
    group: Name
    owner: Identity
    max_in_flight: MaxMessages = 1
    lease_ms: LeaseMs = DEFAULT_LEASE_MS
    member_id: Identity | None = None
    generation: Natural | None = None


class LeasedShape(FetchedShape, frozen=True, kw_only=True, omit_defaults=True):
    """One leased message, with the fields of a fetch and the number of deliveries (including this one) and failures."""

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
    """The reply to a consume.

    It has no lease if no message arrived in time. `generation` is set if the call named a member.

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
    """The body of POST /v1/ack. `partition` is optional if the topic has one; `offset` or `offsets` is required."""

    topic: Name
    group: Name
    owner: Identity
    partition: PartitionNumber | None = None
    token: Natural | None = None
    offset: Natural | None = None
    offsets: Offsets = ()
    generation: Natural | None = None


class AckCumulative(BodyShape, frozen=True, kw_only=True):
    """The body of POST /v1/ack-cumulative, which acks the messages of a lease up to and including the offset."""

    topic: Name
    group: Name
    owner: Identity
    offset: Natural
    partition: PartitionNumber | None = None
    token: Natural | None = None
    generation: Natural | None = None


class Nack(Ack, frozen=True, kw_only=True):
    """The body of POST /v1/nack.

    A `counted` nack is a failure, `uncounted` is a release, and `fatal` makes a dead letter.

    A dead letter keeps up to 8 KiB of the `traceback`; a longer one loses its middle.
    """

    delay_ms: DelayMs | None = None
    reason: Text = ""
    traceback: Text | None = None
    kind: Literal["counted", "uncounted", "fatal"] = "counted"


class Discard(Ack, frozen=True, kw_only=True):
    """The body of POST /v1/discard."""

    reason: Text = ""


class Extend(Ack, frozen=True, kw_only=True):
    """The body of POST /v1/extend.

    It names the lease by token or offset. `alone` means that its suspect now runs alone.
    """

    lease_ms: LeaseMs = DEFAULT_LEASE_MS
    alone: bool = False


class Extended(ReplyShape, frozen=True, kw_only=True):
    expires_at: datetime


class Answers(BodyShape, frozen=True, kw_only=True):
    """The body of POST /v1/topics/{topic}/groups/{group}/answers."""

    owner: Identity
    answers: LeaseAnswers
    generation: Natural | None = None


class AnswersAnswer(ReplyShape, frozen=True, kw_only=True):
    results: list[AnswerResult]
