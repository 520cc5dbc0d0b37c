"""S10: after an ok ack or discard there is no delivery to that group in the same position epoch."""

from __future__ import annotations

from tests.kit.lease_checks.basis import Delivery, LeaseTruth, LeaseViolation, Story
from tests.kit.lease_history import LeaseOperation


def check(story: Story, truth: LeaseTruth) -> list[LeaseViolation]:
    repeats: dict[tuple[int, int], list[Delivery]] = {}
    for told in story.again:
        repeats.setdefault(told.place, []).append(told)
    violations = []
    for (partition, token, offset), said in story.answers.items():
        delivery = story.by_lease.get((partition, token, offset))
        if delivery is None:
            continue
        for answer in said:
            if answer.outcome != "ok" or not _ends(answer, offset):
                continue
            place = (partition, offset)
            for other in [*story.deliveries[place], *repeats.get(place, [])]:
                if other.epoch == delivery.epoch and _after(other, delivery, answer):
                    what = f"message {place}: {answer.op} with token {token} was accepted, and token {other.token} came"
                    operations = (answer, other.consume)
                    violations.append(LeaseViolation(invariant="S10", what=what, operations=operations))
    return violations


def _ends(answer: LeaseOperation, offset: int) -> bool:
    return answer.op in ("ack", "discard", "fail") or offset in answer.dead


def _after(other: Delivery, delivery: Delivery, answer: LeaseOperation) -> bool:
    return other.token > delivery.token or other.consume.invoked_ns > (answer.completed_ns or 0)
