"""Converts a plan into the ranges that a reader of columns reads: pure functions without I/O.

Every offset of the plan is in exactly one range. A plan with a gap is refused, so that no message is silently missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakelog.errors import OffsetOutOfRange, Unavailable
from lakelog.model.lake import PartitionPlan, Plan
from lakelog.model.segment import Segment

Ranges = Mapping[int, tuple[int, int]]
"""The first offset and the end offset (not included), by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """Offsets of one partition, from `first` up to, not including, `end`.

    They are in one segment or, without a segment, wherever the server finds them.
    """

    partition: int
    first: int
    end: int
    segment: Segment | None = None

    @property
    def count(self) -> int:
        return self.end - self.first

    @property
    def bytes(self) -> int:
        """The approximate number of bytes of the segment's file in this range."""
        if self.segment is None:
            return 0
        return self.segment.bytes * self.count // max(1, self.segment.end - self.segment.first)

    @property
    def is_whole(self) -> bool:
        """True if the range covers the whole segment."""
        return self.segment is not None and (self.first, self.end) == (self.segment.first, self.segment.end)


def ranges_of(plan: Plan) -> list[ReadRange]:
    """Return the ranges of a plan by partition and offset: of segments, and hot ranges between and after them."""
    return [read_range for partition in plan.partitions for read_range in _ranges_of(partition)]


def ranges_in(ranges: Ranges) -> list[ReadRange]:
    """Return ranges that are read from wherever the server finds them."""
    wanted = sorted(ranges.items())
    return [ReadRange(partition=number, first=first, end=end) for number, (first, end) in wanted if first < end]


def require_whole(plan: Plan, starts: Mapping[int, int] | None, ends: Mapping[int, int] | None) -> None:
    """Raise an error if the plan was clipped: all named offsets must exist."""
    found = {partition.partition: partition for partition in plan.partitions}
    for number in sorted({*(starts or {}), *(ends or {})} - set(found)):
        raise OffsetOutOfRange(
            f"Topic {plan.topic!r} has no partition {number}; it has {len(found)}, from 0 on.",
            topic=plan.topic,
            partition=number,
        )
    for number, partition in found.items():
        for offset in ((starts or {}).get(number), (ends or {}).get(number)):
            if offset is not None and not partition.log_start <= offset <= partition.high_watermark:
                raise out_of_range(plan.topic, partition, offset)


def out_of_range(topic: str, partition: PartitionPlan, offset: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"Partition {partition.partition} of {topic!r} holds offsets {partition.log_start} up to, not including, "
        f"{partition.high_watermark}; {offset} is outside. Retention or a purge removed older messages.",
        topic=topic,
        partition=partition.partition,
        offset=offset,
    )


def _ranges_of(plan: PartitionPlan) -> Iterator[ReadRange]:
    at = plan.start
    for segment in sorted((*plan.segments, *plan.later), key=lambda segment: segment.first):
        end = min(segment.end, plan.end)
        if end <= at or segment.first >= plan.end:
            continue
        if at < min(plan.hot_from, segment.first):
            raise _hole(plan, at)
        if segment.first > at:
            yield ReadRange(partition=plan.partition, first=at, end=segment.first)
            at = segment.first
        yield ReadRange(partition=plan.partition, first=at, end=end, segment=segment)
        at = end
    if at < min(plan.hot_from, plan.end):
        raise _hole(plan, at)
    if at < plan.end:
        yield ReadRange(partition=plan.partition, first=at, end=plan.end)


def _hole(plan: PartitionPlan, offset: int) -> Unavailable:
    return Unavailable(
        f"The plan of partition {plan.partition} does not contain offset {offset}. Read again.",
        partition=plan.partition,
        offset=offset,
    )
