"""Where reading begins: at an offset, at a time, or at either end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The place of a published message.

    Attributes:
        id: The id of the message, which no other message ever has.
        partition: The number of the partition.
        offset: The offset in the partition.
        duplicate: Whether the idempotency key was used before; then the receipt is that of the first message.
    """

    id: str
    partition: int
    offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class AtOffset:
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
    """`back` messages before the high watermark; 0: only what is yet to come."""

    back: int = 0


Position = AtOffset | AtTime | Earliest | Latest
