"""Converts a plan into the splits that tasks read: pure functions without Spark and I/O.

Every offset of the plan is in exactly one split. A plan with a gap is refused, so that no message is silently missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from lakelog.errors import OffsetOutOfRange, Unavailable
from lakelog.model.lake import PartitionPlan, Plan
from lakelog.model.segment import Segment

Ranges = Mapping[int, tuple[int, int]]
"""The first offset and the end offset (not included), by partition."""

MiB = 1 << 20
# The cost of one more file, or one more range, for a task.
_OPENING, _CALLING = MiB, 1_000


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSizes:
    """How much a task reads. A small read is spread over `aim` tasks, if each reads at least `least`."""

    cold_bytes: int = 96 * MiB
    least_cold_bytes: int = 8 * MiB
    hot_messages: int = 250_000
    least_hot_messages: int = 20_000
    aim: int = 16


Split = tuple[ReadRange, ...]


def ranges_of(plan: Plan) -> list[ReadRange]:
    """Return the ranges of a plan by partition and offset: of segments, and hot ranges between and after them."""
    return [read_range for partition in plan.partitions for read_range in _ranges_of(partition)]


def splits_of(read_ranges: Iterable[ReadRange], sizes: SplitSizes | None = None) -> list[Split]:
    """Return the same offsets in splits of similar weight: large ranges are cut, small ones share a task."""
    sizes = sizes or SplitSizes()
    cold: list[ReadRange] = []
    hot: list[ReadRange] = []
    for read_range in read_ranges:
        (hot if read_range.segment is None else cold).append(read_range)
    return [
        *_spread(
            cold, lambda read_range: read_range.bytes + _OPENING, sizes.least_cold_bytes, sizes.cold_bytes, sizes.aim
        ),
        *_spread(
            hot, lambda read_range: read_range.count + _CALLING, sizes.least_hot_messages, sizes.hot_messages, sizes.aim
        ),
    ]


def hot_layers(read_ranges: Iterable[ReadRange]) -> list[Ranges]:
    """Return hot ranges as few mappings: one, unless a partition has segments between two hot ranges."""
    layers: list[dict[int, tuple[int, int]]] = []
    for each in read_ranges:
        for layer in layers:
            first, end = layer.get(each.partition, (each.first, each.first))
            if end == each.first:
                layer[each.partition] = (first, each.end)
                break
        else:
            layers.append({each.partition: (each.first, each.end)})
    return [*layers]


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


def _spread(
    read_ranges: list[ReadRange], weigh: Callable[[ReadRange], int], least: int, most: int, aim: int
) -> Iterator[Split]:
    total = sum(map(weigh, read_ranges))
    target = max(1, min(most, max(least, total // aim)))
    gathered: list[ReadRange] = []
    weight = 0
    for part in (part for read_range in read_ranges for part in _cut(read_range, weigh(read_range) // target)):
        if gathered and weight + weigh(part) > target:
            yield tuple(gathered)
            gathered, weight = [], 0
        gathered.append(part)
        weight += weigh(part)
    if gathered:
        yield tuple(gathered)


def _cut(read_range: ReadRange, parts: int) -> Iterator[ReadRange]:
    """Yield at most `parts` ranges of similar length, none of them empty.

    A file is cut between row groups, as far as they are known: two tasks would otherwise read the same group.
    """
    first, end = read_range.first, read_range.end
    parts = max(1, min(parts, read_range.count))
    inner = {first + read_range.count * number // parts for number in range(1, parts)}
    if read_range.segment is not None and read_range.segment.groups:
        starts = [start for start in read_range.segment.groups if first < start < end]
        inner = {min(starts, key=lambda start: abs(start - edge)) for edge in inner if starts}
    for low, high in pairwise(sorted({first, *inner, end})):
        yield replace(read_range, first=low, end=high)
