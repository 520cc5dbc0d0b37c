"""S16: the committed offset is the end of the contiguous finished prefix, and never falls within a position epoch.

Below it everything may be finished; the message at it is not surely finished. Samples are taken while the group works.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate, pairwise

from tests.kit.lease_checks.basis import LeaseTruth, LeaseViolation, Place, Story
from tests.kit.lease_history import LeaseOperation, ProgressSeen

_NEVER = 1 << 63
Sample = tuple[LeaseOperation | None, ProgressSeen]


def check(story: Story, truth: LeaseTruth) -> list[LeaseViolation]:
    samples: dict[int, list[Sample]] = defaultdict(list)
    for sample in story.samples:
        for part in sample.progress:
            samples[part.partition].append((sample, part))
    for part in truth.progress:
        samples[part.partition].append((None, part))
    violations = []
    for partition, series in samples.items():
        violations += _falls(series)
        prefixes: dict[int, list[int]] = {}
        for operation, part in series:
            if part.epoch not in prefixes:
                prefixes[part.epoch] = _prefix(story, partition, part)
            violations += _judge(story, operation, part, prefixes[part.epoch])
    return violations


def _falls(series: list[Sample]) -> list[LeaseViolation]:
    violations = []
    for (first, before), (second, after) in pairwise(series):
        apart = first is not None and (second is None or (first.completed_ns or 0) < second.invoked_ns)
        fell = after.epoch < before.epoch or (after.epoch == before.epoch and after.committed < before.committed)
        if apart and fell:
            where = f"partition {before.partition}: committed went from {before.committed} to {after.committed}"
            violations.append(_violation(f"{where}, epoch from {before.epoch} to {after.epoch}", first, second))
    return violations


def _prefix(story: Story, partition: int, part: ProgressSeen) -> list[int]:
    """For each offset: from when on everything below it may have been finished in that epoch."""
    epoch = part.epoch if story.seeks else 0
    end = sum(1 for place in story.truth.keys if place[0] == partition)
    times = [_first_finish(story, (partition, offset), epoch) for offset in range(part.start, end)]
    return [0, *accumulate(times, max)]


def _first_finish(story: Story, place: Place, epoch: int) -> int:
    times = [each.invoked_ns for each in story.finishes(place, epoch)]
    if place in story.dead:
        times += [each.told_ns for each in story.deliveries.get(place, ())] or [0]
    return min(times, default=_NEVER)


def _judge(
    story: Story, operation: LeaseOperation | None, part: ProgressSeen, prefix: list[int]
) -> list[LeaseViolation]:
    where = f"partition {part.partition}: committed {part.committed}"
    asked = operation.invoked_ns if operation else _NEVER - 1
    told = (operation.completed_ns or 0) if operation else _NEVER - 1
    at = part.committed - part.start
    passed = part.filtered + part.expired + part.cut
    if at < 0:
        return [_violation(f"{where} is below its start, {part.start}", operation)]
    if at < len(prefix) and prefix[at] > told and not passed:
        return [_violation(f"{where}, and not everything below it is finished", operation)]
    epoch = part.epoch if story.seeks else 0
    for delivery in story.deliveries.get((part.partition, part.committed), ()):
        for answer in story.said(delivery):
            ended = answer.op in ("ack", "discard") or part.committed in answer.dead
            done = answer.completed_ns is not None and answer.completed_ns < asked
            if delivery.epoch == epoch and answer.outcome == "ok" and ended and done:
                return [_violation(f"{where} stands at a message that is finished", operation, answer)]
    return []


def _violation(what: str, *shown: LeaseOperation | None) -> LeaseViolation:
    return LeaseViolation(invariant="S16", what=what, operations=tuple(each for each in shown if each is not None))
