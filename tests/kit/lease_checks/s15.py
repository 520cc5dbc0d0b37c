"""S15: key order: a message is never given out while the one before it of the same key is open or waiting.

In the same lease both may be: the owner runs them one after the other. A dead letter frees its key.
"""

from __future__ import annotations

from itertools import pairwise

from tests.kit.lease_checks.basis import Delivery, LeaseTruth, LeaseViolation, Place, Story


def check(story: Story, truth: LeaseTruth) -> list[LeaseViolation]:
    violations = []
    for (partition, _), chain in story.chains().items():
        for earlier, later in pairwise(chain):
            front = (partition, earlier)
            epochs = story.epochs(front)
            for delivery in story.deliveries.get((partition, later), ()):
                if earlier < _start(truth, story, delivery):
                    continue
                what = _overtaken(story, front, epochs.get(delivery.epoch, []), delivery)
                if what:
                    violations.append(_violation(what, front, delivery))
    return violations


def _overtaken(story: Story, front: Place, before: list[Delivery], delivery: Delivery) -> str | None:
    if any(each.token == delivery.token for each in before):
        return None
    again = [each for each in before if each.token > delivery.token]
    if again:
        return f"was given to {delivery.owner}, and the one before it to {again[0].owner} afterwards"
    if front in story.dead:
        return None
    finishes = story.finishes(front, delivery.epoch)
    if not any(each.invoked_ns < delivery.told_ns for each in finishes):
        return f"was given to {delivery.owner} before the one before it was finished"
    return None


def _start(truth: LeaseTruth, story: Story, delivery: Delivery) -> int:
    """Where the epoch began: nothing before it is the group's business."""
    if delivery.epoch != story.epoch:
        return 0
    return next((part.start for part in truth.progress if part.partition == delivery.place[0]), 0)


def _violation(what: str, front: Place, delivery: Delivery) -> LeaseViolation:
    shown = f"message {delivery.place}, after {front} of its key, {what}"
    return LeaseViolation(invariant="S15", what=shown, operations=(delivery.consume,))
