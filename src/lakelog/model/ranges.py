"""Runs of numbers, such as offsets and partitions: (first, last) pairs, both included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import lt

Range = tuple[int, int]
"""The first and the last of a run, both included."""


def rises(offsets: Sequence[int]) -> bool:
    """Return whether each number is above the one before."""
    return isinstance(offsets, range) or all(map(lt, offsets, islice(offsets, 1, None)))


def to_ranges(offsets: Sequence[int]) -> list[Range]:
    """Return the numbers, in the order given, as runs."""
    if not offsets:
        return []
    if offsets[-1] - offsets[0] == len(offsets) - 1 and rises(offsets):
        return [(offsets[0], offsets[-1])]
    ranges: list[Range] = []
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            ranges.append((first, last))
            first = offset
        last = offset
    ranges.append((first, last))
    return ranges


def from_ranges(ranges: Iterable[Range]) -> Iterator[int]:
    """Return the numbers of these runs, in their order."""
    return chain.from_iterable(range(first, last + 1) for first, last in ranges)
