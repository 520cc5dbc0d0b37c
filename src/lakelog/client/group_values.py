"""The arguments and results of calls about groups: frozen values. A group's settings are in `lakelog.model.group`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lakelog.errors import LakelogError
from lakelog.model.group import DEFAULT_LEASE_MS, DEFAULT_SESSION_MS, GroupWish
from lakelog.model.lease import Answered, LeaseAnswer
from lakelog.model.repair import Repair
from lakelog.wire.leases import LeaseHead, LeasesHead

Payload = bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeWish:
    """The arguments of a consume.

    A repeat with the same owner and request id gets the leases of the first call again.
    """

    topic: str
    group: str
    owner: str
    request_id: str
    max_messages: int = 1
    lease_ms: int = DEFAULT_LEASE_MS
    wait_seconds: float = 0.0
    member_id: str | None = None
    generation: int | None = None
    isolates: bool = False
    """True if the caller runs a suspect alone in its process, and confirms it with an extend (`alone`)."""
    repeat: bool = False
    """True if the call was sent before with the same request id, and its response was lost. The server searches all
    partitions for its leases first, because another server may have granted them.
    """
    answers: tuple[LeaseAnswer, ...] = ()
    """Answers for leases that the owner holds: decided first, in the same commit. A call with
    answers does not wait for messages, even if `wait_seconds` is set: it returns as soon as the answers are decided."""
    wish: GroupWish = field(default_factory=GroupWish)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """Leases before their messages are decoded.

    Attributes:
        head: The leases, without their messages.
        payloads: The stored batches of all leases, in the order of the head.
        answered: One outcome for each answer of the request, in order.
        leases: The leases of the head.
    """

    head: LeasesHead
    payloads: Sequence[Payload]
    answered: Sequence[Answered | LakelogError] = ()
    """One outcome for each answer of the request, in order."""

    @property
    def leases(self) -> Sequence[LeaseHead]:
        return self.head.leases


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWish:
    """The arguments of a join: a member and the topics that it reads. Joining again with the same id is safe.

    `client` names the kind of program, for display beside its host. With `replace`, all other members leave.
    """

    group: str
    topics: tuple[str, ...]
    member_id: str
    session_ms: int = DEFAULT_SESSION_MS
    client_host: str = ""
    client: str | None = None
    replace: bool = False
    wish: GroupWish = field(default_factory=GroupWish)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that a group has given up, with the reason.

    Attributes:
        id: The id of the message.
        topic: The topic of the message.
        partition: The partition of the message.
        offset: The offset of the message in its partition.
        error: The reason of the last failure.
        deliveries: How often the message was delivered.
        failures: How often the message failed.
        at: When the message became a dead letter.
        owner: The consumer that had the message last.
        state: "dead", "redriven" or "discarded".
        key: The key, as bytes; None if the message has none.
        raw: The value, as bytes; None if the message has no value.
        headers: The headers, text by name.
        content_type: The content type of the value.
        correlation_id: The correlation id that the publisher gave; None if it gave none.
        created_at: When the publisher created the message.
        epoch: The position epoch in which the message died.
        lineage: The id of the first published message and the number of redrives; None if it was never redriven.
        redriven_to: The id of the message that was published for the dead letter.
        traceback: The traceback of the last failure, at most 8 KiB; None if the worker sent none.
    """

    id: str
    topic: str
    partition: int
    offset: int
    error: str
    deliveries: int
    failures: int
    at: datetime | None
    owner: str
    state: str
    key: bytes | None = None
    raw: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None
    epoch: int = 0
    """The position epoch in which the message died."""
    lineage: str | None = None
    redriven_to: str | None = None
    """The id of the message that was published for the dead letter."""
    traceback: str | None = None
    """Traceback of the last failure, at most 8 KiB; None if the worker sent none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadWish:
    """A selection of dead letters."""

    topic: str | None = None
    partition: int | None = None
    where: str | None = None
    message_ids: tuple[str, ...] | None = None
    state: str = "dead"
    after: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadPage:
    """A page of dead letters.

    Attributes:
        letters: The dead letters.
        next: The value of `after` for the next page; None if there is none.
    """

    letters: Sequence[DeadLetter]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """The result of a redrive, or of a dry run.

    Attributes:
        redriven: Dead letters that were published again.
        refused: Dead letters that could not be redriven.
        ids: The first ids of redriven dead letters.
        refusals: The first ids of refused dead letters, each with the reason.
        has_more: True if the limit was reached. Repeat the call for the rest.
        dry_run: True if this was a dry run, which publishes nothing.
    """

    redriven: int = 0
    refused: int = 0
    ids: tuple[str, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()
    has_more: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveWish:
    """The dead letters to publish again: those in `ids`, or those that `topic` and `where` select."""

    topic: str | None = None
    where: str | None = None
    message_ids: tuple[str, ...] | None = None
    limit: int = 10_000
    dry_run: bool = False
    force: bool = False
    max_redrives: int = 3
    repaired: Mapping[str, Repair] | None = None
    """The new values and headers, by id."""
