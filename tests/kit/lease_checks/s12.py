"""S12: deliveries are 1, 2, 3 … without gap; failures are nacks, and expiries while alone; dead at the limit.

A consume of unknown outcome may have taken a message without anybody knowing: it excuses one missing delivery of it,
and one failure. A message that never failed never dies.
"""

from __future__ import annotations

from itertools import pairwise

from tests.kit.lease_checks.basis import DeadSeen, Delivery, LeaseTruth, LeaseViolation, Place, Story
from tests.kit.lease_history import LeaseOperation


def check(story: Story, truth: LeaseTruth) -> list[LeaseViolation]:
    violations = []
    limit = truth.rules.limit
    for place in story.deliveries:
        for epoch, deliveries in story.epochs(place).items():
            by_number = sorted(deliveries, key=lambda each: each.number)
            violations += _numbers(story, by_number)
            violations += _failures(story, by_number)
            for delivery in by_number:
                if delivery.failures >= limit:
                    violations.append(_violation(f"delivered after {delivery.failures} failures", delivery))
            if epoch == story.epoch:
                violations += _due_to_die(story, by_number[-1], limit)
    for place, letter in story.dead.items():
        violations += _died(story, place, letter, limit)
    return violations


def _numbers(story: Story, deliveries: list[Delivery]) -> list[LeaseViolation]:
    violations = []
    missing = deliveries[0].number - 1
    if missing > story.unknown_before(deliveries[0].told_ns):
        violations.append(_violation(f"its first delivery is number {deliveries[0].number}", deliveries[0]))
    for first, second in pairwise(deliveries):
        gap = second.number - first.number - 1
        if gap < 0:
            violations.append(_violation(f"delivery {first.number} is there twice", first, second))
        missing += max(0, gap)
        if gap > 0 and missing > story.unknown_before(second.told_ns):
            violations.append(_violation(f"number {second.number} follows number {first.number}", first, second))
    return violations


def _failures(story: Story, deliveries: list[Delivery]) -> list[LeaseViolation]:
    violations = []
    first = deliveries[0]
    if first.failures > first.number - 1:
        violations.append(_violation(f"delivery {first.number} has failed {first.failures} times", first))
    for before, after in pairwise(deliveries):
        low, high = _rise(story, before, after)
        rise = after.failures - before.failures
        if not low <= rise <= high:
            what = f"failures went from {before.failures} to {after.failures}; {low} to {high} more were possible"
            violations.append(_violation(what, before, after))
    return violations


def _rise(story: Story, before: Delivery, after: Delivery) -> tuple[int, int]:
    """By how much the failures can have risen from one delivery to the next known one."""
    unseen = max(0, after.number - before.number - 1)
    counted = [each for each in story.said(before) if each.op == "nack" and each.happened]
    sure = any(each.outcome == "ok" and _counts(story, each, before.place) for each in counted)
    expired = story.was_alone(before) and after.granted_ms >= story.expires_ms(before)
    return int(sure), int(bool(counted) or expired) + unseen


def _counts(story: Story, nack: LeaseOperation, place: Place) -> bool:
    """Of several messages of a key in one nack, only the first has failed."""
    key = story.key(place)
    earlier = [offset for offset in nack.offsets if offset < place[1]]
    return key is None or all(story.key((place[0], offset)) != key for offset in earlier)


def _due_to_die(story: Story, last: Delivery, limit: int) -> list[LeaseViolation]:
    for answer in story.said(last):
        nacked = answer.outcome == "ok" and answer.op == "nack" and _counts(story, answer, last.place)
        if nacked and last.failures + 1 >= limit and last.place not in story.dead:
            return [_violation(f"failed {limit} times, and is no dead letter", last)]
    return []


def _died(story: Story, place: Place, letter: DeadSeen, limit: int) -> list[LeaseViolation]:
    deliveries = sorted(story.deliveries.get(place, []), key=lambda each: (each.epoch, each.number))
    unknown = len(story.unknown)
    if not deliveries:
        return [] if unknown else [_bare(place, "a dead letter that was never delivered")]
    last = deliveries[-1]
    fatal = any(each.op == "fail" and each.happened for each in story.said(last))
    if letter.failures != limit and not fatal:
        return [_violation(f"died of {letter.failures} failures; the limit is {limit}", last)]
    if not last.number <= letter.deliveries <= last.number + unknown:
        what = f"the dead letter says {letter.deliveries} deliveries; the last was number {last.number}"
        return [_violation(what, last)]
    unseen = letter.deliveries - last.number
    failed = any(each.op in ("nack", "fail") and each.happened for each in story.said(last))
    possible = last.failures + unseen + (1 if failed or story.was_alone(last) else 0)
    if possible < letter.failures:
        return [_violation(f"died of {letter.failures} failures; it had {possible} at most", last)]
    return []


def _bare(place: Place, what: str) -> LeaseViolation:
    return LeaseViolation(invariant="S12", what=f"message {place}: {what}")


def _violation(what: str, *shown: Delivery) -> LeaseViolation:
    operations = tuple(each.consume for each in shown)
    return LeaseViolation(invariant="S12", what=f"message {shown[0].place}: {what}", operations=operations)
