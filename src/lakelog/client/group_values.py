"""The arguments and results of calls about dead letters: frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lakelog.model.repair import Repair


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
    """The position epoch in which it died."""
    lineage: str | None = None
    redriven_to: str | None = None
    """The id of the message that was published for it."""
    traceback: str | None = None
    """Traceback of the last failure, at most 8 KiB; None if the worker sent none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadWish:
    """Which dead letters are meant."""

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
        has_more: Whether the limit was reached; repeat the call for the rest.
        dry_run: Whether nothing was published.
    """

    redriven: int = 0
    refused: int = 0
    ids: tuple[str, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()
    has_more: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveWish:
    """Which dead letters are published again: those named, or those that `topic` and `where` select."""

    topic: str | None = None
    where: str | None = None
    message_ids: tuple[str, ...] | None = None
    limit: int = 10_000
    dry_run: bool = False
    force: bool = False
    max_redrives: int = 3
    repaired: Mapping[str, Repair] | None = None
    """Changes by id."""
