"""S7: a batch is all or nothing per partition.

Messages of a batch that were refused, or that repeat another attempt, stand by themselves and are left out. A message
of unknown outcome counts with the partition that it asked for, or where its key's messages of that batch are; one
without either could be anywhere, and shows nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.kit.checks.basis import FinalRead, Place, Violation, identity, placed, publishes
from tests.kit.history import Operation


def check(operations: Sequence[Operation], final: FinalRead) -> list[Violation]:
    attempts = publishes(operations)
    times = Counter(identity(operation) for operation in attempts)
    there: dict[tuple[str, str], Place] = {(place[0], message.hash): place for place, message in final.places()}
    batches: dict[tuple[str, str, int], list[Operation]] = defaultdict(list)
    for operation in attempts:
        alone = identity(operation) is None or times[identity(operation)] == 1
        if operation.batch is not None and operation.outcome != "fail" and alone:
            batches[operation.topic, operation.process, operation.batch].append(operation)
    starts = final.log_starts()
    violations = []
    for batch in batches.values():
        if len(batch) == 1:
            continue
        for partition, members in _by_partition(batch, there).items():
            violations += _judge(members, there, starts.get((members[0].topic, partition), 0))
    return violations


def _by_partition(batch: Sequence[Operation], there: dict[tuple[str, str], Place]) -> dict[int, list[Operation]]:
    known: dict[str, int] = {}
    by_key: dict[str, int] = {}
    for operation in batch:
        place = there.get((operation.topic, operation.hash)) or placed(operation)
        partition = operation.asked_partition if place is None else place[1]
        if partition is not None:
            known[operation.id] = partition
            if operation.key is not None:
                by_key[operation.key] = partition
    parts: dict[int, list[Operation]] = defaultdict(list)
    for operation in batch:
        partition = known.get(operation.id)
        if partition is None and operation.key is not None:
            partition = by_key.get(operation.key)
        if partition is not None:
            parts[partition].append(operation)
    return parts


def _judge(members: Sequence[Operation], there: dict[tuple[str, str], Place], log_start: int) -> list[Violation]:
    offsets = [there.get((operation.topic, operation.hash)) for operation in members]
    present = [(index, place[2]) for index, place in enumerate(offsets) if place is not None]
    if not present or len(present) == len(members):
        return []
    # A batch lies in one piece, so that the first one found tells where the others would be.
    first = present[0][1] - present[0][0]
    absent = [first + index for index, place in enumerate(offsets) if place is None]
    missing = [offset for offset in absent if not 0 <= offset < log_start]
    if not missing:
        return []
    what = f"{len(present)} of {len(members)} messages of a batch are there; missing {members[missing[0] - first].id}"
    return [Violation(invariant="S7", what=what, operations=tuple(members))]
