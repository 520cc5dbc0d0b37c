"""S5: offsets are dense from log start to high watermark; the order of a producer's messages of one key is kept.

Order is asked of messages in one partition that were surely sent one after the other: in one batch, with rising
sequence, or the second invoked after the first was acked. Messages of unknown outcome are placed by the final read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

from tests.kit.checks.basis import FinalPartition, FinalRead, Place, Violation, placed, publishes, repeats
from tests.kit.history import Operation

Pair = tuple[Operation, Operation]


def check(operations: Sequence[Operation], final: FinalRead) -> list[Violation]:
    violations = [violation for part in final.partitions for violation in _dense(part)]
    return violations + _ordered(publishes(operations), final)


def _dense(part: FinalPartition) -> list[Violation]:
    found = [message.offset for message in part.messages]
    wanted = range(part.log_start, part.high_watermark)
    if found == list(wanted):
        return []
    where = f"{part.topic}/{part.partition} from {part.log_start} to {part.high_watermark}"
    missing = sorted(set(wanted) - set(found))
    outside = sorted({offset for offset in found if offset not in wanted})
    twice = sorted(offset for offset, times in Counter(found).items() if times > 1)
    what = f"{where}: missing {missing[:10]}, outside {outside[:10]}, twice {twice[:10]}"
    if not (missing or outside or twice):
        what = f"{where}: read out of order"
    return [Violation(invariant="S5", what=what)]


def _ordered(attempts: Sequence[Operation], final: FinalRead) -> list[Violation]:
    again = repeats(attempts)
    located = _locate(attempts, final)
    streams: dict[tuple[object, ...], list[Operation]] = defaultdict(list)
    for operation in attempts:
        place = located.get(operation.id)
        # A repeat's place was taken by the first attempt, whenever the repeat comes.
        if operation.key is None or place is None or operation.id in again or operation.duplicate:
            continue
        streams[operation.producer or operation.process, operation.key, *place[:2]].append(operation)
    violations = []
    for stream in streams.values():
        violations += _in_order(stream, located)
    return violations


def _in_order(stream: Sequence[Operation], located: dict[str, Place]) -> list[Violation]:
    by_offset = sorted(stream, key=lambda operation: located[operation.id][2])
    sequenced = [operation for operation in by_offset if operation.producer and operation.sequence is not None]
    batches: dict[tuple[str, int | None], list[Operation]] = defaultdict(list)
    for operation in by_offset:
        batches[operation.process, operation.batch].append(operation)
    swaps = _falls(sequenced, lambda operation: operation.sequence or 0) + _acked_too_late(by_offset)
    for (_, batch), members in batches.items():
        if batch is not None:
            swaps += _falls(members, lambda operation: operation.counter)
    # Two rules may show the same pair.
    pairs = {(first.id, second.id): (first, second) for first, second in swaps}
    return [_swapped(first, second, located) for first, second in pairs.values()]


def _falls(by_offset: Sequence[Operation], rank: Callable[[Operation], int]) -> list[Pair]:
    """Neighbours in the log whose rank falls; where all rise, no pair is swapped."""
    pairs = pairwise(by_offset)
    return [(later, earlier) for earlier, later in pairs if rank(later) < rank(earlier)]


def _acked_too_late(by_offset: Sequence[Operation]) -> list[Pair]:
    """Messages invoked after one was acked that stands behind them; a pass from the end keeps the soonest ack."""
    found: list[Pair] = []
    soonest: tuple[int, Operation] | None = None
    for operation in reversed(by_offset):
        if soonest is not None and soonest[0] < operation.invoked_ns:
            found.append((soonest[1], operation))
        acked = operation.completed_ns if operation.outcome == "ok" else None
        if acked is not None and (soonest is None or acked < soonest[0]):
            soonest = (acked, operation)
    return found


def _swapped(first: Operation, second: Operation, located: dict[str, Place]) -> Violation:
    what = f"{first.id} was sent before {second.id}, but is at {located[first.id]}, after {located[second.id]}"
    return Violation(invariant="S5", what=what, operations=(first, second))


def _locate(attempts: Sequence[Operation], final: FinalRead) -> dict[str, Place]:
    """Places by answer, or for unknown outcomes by value, where the final read has that value once."""
    by_value: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for place, message in final.places():
        by_value[place[0], message.hash].append(place)
    located: dict[str, Place] = {}
    for operation in attempts:
        found = placed(operation)
        candidates = by_value.get((operation.topic, operation.hash), [])
        if found is None and operation.outcome == "info" and len(candidates) == 1:
            found = candidates[0]
        if found is not None:
            located[operation.id] = found
    return located
