"""Positions at which reading starts, and the receipt of a published message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The position of a published message.

    Attributes:
        id: The unique id of the message.
        partition: The number of the partition.
        offset: The offset in the partition.
        duplicate: Whether the idempotency key was used before. The receipt is then that of the first message.
    """

    id: str
    partition: int
    offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledReceipt(Receipt):
    """The receipt of a delayed message.

    Attributes:
        id: The id by which the message can be cancelled. The published message has another one.
        partition: The number of the partition, which was chosen when the message was scheduled.
        offset: None while the message waits. A repeated call that finds the message published has its offset.
        due_at: When the message is published, in the database's time. A message that a repeated call finds published
            was due then or earlier.
        duplicate: Whether the idempotency key was used before. The receipt is then that of the first message.
    """

    offset: int | None = None  # type: ignore[assignment]  # wider than that of a published message
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxReceipt(Receipt):
    """The receipt of a message that is published when the caller's transaction commits.

    Attributes:
        id: The id of the message in the outbox. `log.message(id)` finds its position later.
        partition: None: the partition is chosen when the message is published.
        offset: None: the message is not published yet.
        duplicate: False.
    """

    partition: int | None = None  # type: ignore[assignment]  # wider than that of a published message
    offset: int | None = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The message at this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message that was appended at this time or later."""

    time: datetime


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start."""


@dataclass(frozen=True, slots=True)
class Latest:
    """`back` messages before the high watermark. 0 means only messages that are appended later."""

    back: int = 0


Position = AtOffset | AtTime | Earliest | Latest
