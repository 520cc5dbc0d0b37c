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
