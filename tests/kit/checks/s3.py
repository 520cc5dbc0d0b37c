"""S3: a (topic, partition, offset) has one content hash, in every publish, fetch and final read.

It needs neither to know who is right nor which came first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.kit.checks.basis import FinalRead, Place, Violation, fetches, placed, publishes
from tests.kit.history import Operation


def check(operations: Sequence[Operation], final: FinalRead) -> list[Violation]:
    first: dict[Place, tuple[str, Operation | None]] = {}
    violations = []
    for place, content, by in _sightings(operations, final):
        known, known_by = first.setdefault(place, (content, by))
        if known != content:
            involved = tuple(operation for operation in (known_by, by) if operation is not None)
            violations.append(Violation(invariant="S3", what=f"{place} is {known} and {content}", operations=involved))
    return violations


def _sightings(operations: Sequence[Operation], final: FinalRead) -> Iterator[tuple[Place, str, Operation | None]]:
    for operation in publishes(operations):
        place = placed(operation)
        if place is not None:
            yield place, operation.hash, operation
    for fetch in fetches(operations):
        for seen in fetch.messages:
            if fetch.asked_partition is not None:
                yield (fetch.topic, fetch.asked_partition, seen.offset), seen.hash, fetch
    for place, message in final.places():
        yield place, message.hash, None
