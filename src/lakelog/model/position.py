"""Where reading begins: at an offset, at a time, or at either end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Where a published message is. A duplicate has the place of its first publish."""

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
