"""S6: the high watermark never falls, and a reader at the tail skips nothing.

A reader that asks again from another offset has moved by itself; only gaps inside one answer are skips.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from tests.kit.checks.basis import FinalRead, Violation, fetches, placed, publishes
from tests.kit.history import Operation

# Told at a time: from then on the high watermark is at least so much.
Floor = tuple[int, int, Operation]
Streams = dict[tuple[str, int], list[Operation]]


def check(operations: Sequence[Operation], final: FinalRead) -> list[Violation]:
    reads: Streams = defaultdict(list)
    for fetch in fetches(operations):
        if fetch.asked_partition is not None:
            reads[fetch.topic, fetch.asked_partition].append(fetch)
    floors = _floors(operations)
    ends = {(part.topic, part.partition): part.high_watermark for part in final.partitions}
    violations = [violation for fetch in fetches(operations) for violation in _skips(fetch)]
    for where in {**floors, **reads}:
        violations += _falls(floors.get(where, []), reads.get(where, []), ends.get(where))
    return violations


def _floors(operations: Sequence[Operation]) -> dict[tuple[str, int], list[Floor]]:
    floors: dict[tuple[str, int], list[Floor]] = defaultdict(list)
    for fetch in fetches(operations):
        if fetch.asked_partition is not None and fetch.high_watermark is not None and fetch.completed_ns is not None:
            floor = (fetch.completed_ns, fetch.high_watermark, fetch)
            floors[fetch.topic, fetch.asked_partition].append(floor)
    for operation in publishes(operations):
        place = placed(operation)
        if place is not None and operation.completed_ns is not None:
            floors[place[:2]].append((operation.completed_ns, place[2] + 1, operation))
    for stream in floors.values():
        stream.sort(key=lambda floor: floor[0])
    return floors


def _falls(floors: Sequence[Floor], reads: Sequence[Operation], end: int | None) -> list[Violation]:
    """Compares each fetch with what was told before it was invoked, and the end with everything."""
    violations = []
    told = iter(floors)
    upcoming = next(told, None)
    highest: Floor | None = None
    for fetch in sorted(reads, key=lambda operation: operation.invoked_ns):
        while upcoming is not None and upcoming[0] < fetch.invoked_ns:
            highest = upcoming if highest is None or upcoming[1] > highest[1] else highest
            upcoming = next(told, None)
        if highest is not None and fetch.high_watermark is not None and fetch.high_watermark < highest[1]:
            what = f"the high watermark fell from {highest[1]} to {fetch.high_watermark}"
            violations.append(Violation(invariant="S6", what=what, operations=(highest[2], fetch)))
    top = max(floors, key=lambda floor: floor[1], default=None)
    if top is not None and (end is None or end < top[1]):
        what = f"the high watermark fell from {top[1]} to {end} in the final read"
        violations.append(Violation(invariant="S6", what=what, operations=(top[2],)))
    return violations


def _skips(fetch: Operation) -> list[Violation]:
    offsets = [seen.offset for seen in fetch.messages]
    if not offsets or fetch.asked_offset is None:
        return []
    # What lies below the log start is retired, not skipped.
    expected = max(fetch.asked_offset, fetch.log_start or 0)
    gaps = [(before, after) for before, after in pairwise([expected - 1, *offsets]) if after != before + 1]
    what = f"fetch from {fetch.asked_offset} (log start {fetch.log_start}) went from offset to offset {gaps[:5]}"
    return [Violation(invariant="S6", what=what, operations=(fetch,))] if gaps else []
