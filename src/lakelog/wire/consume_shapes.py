"""The JSON bodies of consume and of the answers to leases, as structs that are checked while they are decoded.

The conventions are those of `shapes`: durations are `_ms` integers, times are RFC 3339 with an offset, and an unknown
field of a body is refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from lakelog.errors import LakelogError
from lakelog.model.group import DEFAULT_LEASE_MS, NewGroupSettings
from lakelog.model.lease import Answered, DelayMs, LeaseMs, MaxMessages, Offsets
from lakelog.model.structs import Identity, Name, Natural, PartitionNumber, Text
from lakelog.model.times import to_ms, to_time
from lakelog.wire.problems import error_of, problem_of
from lakelog.wire.shapes import BodyShape, FetchedShape, ReplyShape


class PushRequest(NewGroupSettings, frozen=True, kw_only=True):
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
    """The result of one answer; `dead` are the offsets that became dead letters, `filtered` those that repeat a value.

    For a nack, `retry_in_ms` is the time until the next attempt, and `max_attempts` the group's limit of failures.
    """

    ok: bool = False
    expires_at: datetime | None = None
    dead: list[int] | None = None
    retry_in_ms: int | None = None
    max_attempts: int | None = None
    filtered: list[int] | None = None
    error: dict[str, Any] | None = None

    @classmethod
    def of(cls, outcome: Answered | LakelogError) -> AnswerResult:
        """Return the outcome of an answer as JSON shows it."""
        if isinstance(outcome, LakelogError):
            return cls(error=problem_of(outcome))
        if outcome == _DONE:
            return _OK
        return cls(
            ok=True,
            expires_at=to_time(outcome.expires_ms),
            dead=list(outcome.dead) or None,
            retry_in_ms=outcome.retry_in_ms,
            max_attempts=outcome.max_attempts,
            filtered=list(outcome.filtered) or None,
        )

    def outcome(self) -> Answered | LakelogError:
        """Return the outcome that JSON shows."""
        if self.error is not None:
            return error_of(self.error)
        return Answered(
            expires_ms=None if self.expires_at is None else to_ms(self.expires_at),
            dead=tuple(self.dead or ()),
            retry_in_ms=self.retry_in_ms,
            max_attempts=self.max_attempts,
            filtered=tuple(self.filtered or ()),
        )


_OK = AnswerResult(ok=True)
_DONE = Answered()


class ConsumeReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply to a consume.

    It has no lease if no message arrived in time. `generation` is set if the call named a member.

    `answered` has the outcome of each of the call's `answers`, in order. `error` is set if an error
    prevented a lease of a call with answers.
    """

    leases: list[LeaseShape]
    generation: int | None = None
    answered: list[AnswerResult] | None = None
    error: dict[str, Any] | None = None


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


class AnswersReply(ReplyShape, frozen=True, kw_only=True):
    results: list[AnswerResult]
