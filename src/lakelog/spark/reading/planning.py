"""Cuts the ranges of a plan into the splits that tasks read: pure functions without Spark and I/O.

Every offset of the ranges is in exactly one split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from lakelog.client.reading.read_ranges import Ranges, ReadRange

MiB = 1 << 20
# The cost of one more file, or one more range, for a task.
_OPENING, _CALLING = MiB, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSizes:
    """How much a task reads. A small read is spread over `aim` tasks, if each reads at least `least`."""

    cold_bytes: int = 96 * MiB
    least_cold_bytes: int = 8 * MiB
    hot_messages: int = 250_000
    least_hot_messages: int = 20_000
    aim: int = 16


Split = tuple[ReadRange, ...]


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
