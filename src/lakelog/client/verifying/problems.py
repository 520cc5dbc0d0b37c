"""The problems that a verification finds, and the ones that a plan alone shows. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lakelog.model.lake import PartitionPlan
from lakelog.model.segment import Segment


class ProblemKind(StrEnum):
    """The kind of a problem."""

    DAMAGED = "damaged"
    """The file or the batches differ from what was sealed, or cannot be decoded."""
    MISSING = "missing"
    """The file of a segment does not exist."""
    SWAPPED = "swapped"
    """The file has the bytes of another segment."""
    GAP = "gap"
    """Neither a segment nor a hot batch holds the offsets."""
    OVERLAP = "overlap"
    """Two segments hold the offsets."""
    ORPHAN = "orphan"
    """No segment has used the file for longer than a sweep waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem of some offsets or of a file.

    Attributes:
        kind: The kind.
        topic: The topic; empty for a file that belongs to none.
        partition: The partition, if there is one.
        first: The first offset.
        end: The end offset, not included.
        path: The path of the file in the object store; empty for messages in PostgreSQL.
        detail: The difference.
    """

    kind: ProblemKind
    topic: str = ""
    partition: int | None = None
    first: int | None = None
    end: int | None = None
    path: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets of a partition from `first` up to, not including, `end`."""

    first: int
    end: int


def segments_of(plan: PartitionPlan) -> list[Segment]:
    """Return all segments of a partition, by offset."""
    return sorted((*plan.segments, *plan.later), key=lambda segment: (segment.first, segment.end))


def hot_ranges(plan: PartitionPlan) -> Iterator[OffsetRange]:
    """Yield the offsets that hot batches have to hold, because no segment does."""
    at = plan.start
    for segment in segments_of(plan):
        if segment.first > at:
            yield OffsetRange(first=at, end=segment.first)
        at = max(at, segment.end)
    if at < plan.end:
        yield OffsetRange(first=at, end=plan.end)


def overlaps(topic: str, plan: PartitionPlan) -> Iterator[Problem]:
    """Yield the offsets that two segments hold."""
    at, before = plan.start, ""
    for segment in segments_of(plan):
        if before and segment.first < at:
            yield Problem(
                kind=ProblemKind.OVERLAP,
                topic=topic,
                partition=plan.partition,
                first=segment.first,
                end=min(at, segment.end),
                path=segment.path,
                detail=f"{before} holds these offsets, too.",
            )
        if segment.end > at:
            at, before = segment.end, segment.path


def sampled(segments: Sequence[Segment], share: float, chance: random.Random) -> list[Segment]:
    """Return about this share of the segments, drawn by `chance`, and at least one if there are any."""
    if share >= 1 or not segments:
        return list(segments)
    count = max(1, round(len(segments) * share))
    return sorted(chance.sample(list(segments), count), key=lambda segment: (segment.partition, segment.first))
