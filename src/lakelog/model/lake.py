"""What a reader of whole ranges, and whoever moves them to the object store, asks of a topic and is told.

Plain values: the engine makes them, HTTP carries them, the client hands them on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from lakelog.model.segment import Segment

ORPHAN_AGE = timedelta(hours=24)
"""How long a file was known to nobody before it is removed, unless a sweep says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWish:
    """Which part of a topic is to be read: all of it unless offsets by partition, or times, say less.

    `since` means the first message appended then or later; `until` and the ends are not included. With an
    `incarnation`, another topic of the same name is refused.
    """

    starts: Mapping[int, int] | None = None
    ends: Mapping[int, int] | None = None
    since: datetime | None = None
    until: datetime | None = None
    incarnation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """Where a partition's messages from `start` up to, not including, `end` are.

    That is what was asked for, as far as the log has it. The segments hold all from `start` up to `hot_from`, and
    perhaps more at either end; hot batches hold the rest.
    """

    partition: int
    log_start: int
    high_watermark: int
    start: int
    end: int
    segments: tuple[Segment, ...]
    hot_from: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where the messages of a topic are, by partition. `store` is the object store's URL, if there is one."""

    topic: str
    incarnation: int
    epoch: int
    environment_id: int
    store: str | None
    partitions: tuple[PartitionPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """Log starts and high watermarks, by partition."""

    incarnation: int
    epoch: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRange:
    """Whole hot batches that may become one segment; `bytes` are those of their payloads."""

    partition: int
    first: int
    end: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierWish:
    """How large segments are to be, and which remainder is worth one: so many bytes, or so old (in seconds)."""

    segment_bytes: int = 128 << 20
    min_bytes: int = 32 << 20
    min_age_seconds: float = 3600.0


class RegisterStatus(StrEnum):
    """What became of a registration."""

    REGISTERED = "registered"
    KNOWN = "known"
    """The same path and range was registered before: a repeat."""
    TAKEN = "taken"
    """Not registered, and the reason says why: its file is nobody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The answer to one segment."""

    status: RegisterStatus
    reason: str | None = None
