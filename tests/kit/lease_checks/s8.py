"""S8: lease tokens of a message strictly rise, and the validity of two leases never overlaps on the database's clock.

A lease that was surely not answered is valid until its expiry. One that may have been answered is over, at the
earliest, when the answer was on its way.
"""

from __future__ import annotations

from itertools import pairwise

from tests.kit.lease_checks.basis import MS, Delivery, LeaseTruth, LeaseViolation, Story


def check(story: Story, truth: LeaseTruth) -> list[LeaseViolation]:
    violations = []
    for deliveries in story.deliveries.values():
        for first, second in pairwise(deliveries):
            what = _rising(first, second) or _overlap(story, first, second)
            if what:
                violations.append(_violation(what, first, second))
    return violations


def _rising(first: Delivery, second: Delivery) -> str | None:
    if first.token == second.token:
        return f"two owners have token {first.token}: {first.owner} and {second.owner}"
    if first.epoch == second.epoch and first.number >= second.number:
        return f"delivery {second.number} has token {second.token}, delivery {first.number} has {first.token}"
    if second.told_ns < first.consume.invoked_ns:
        return f"token {first.token} was given after token {second.token}"
    return None


def _overlap(story: Story, first: Delivery, second: Delivery) -> str | None:
    if first.epoch != second.epoch:
        # A seek ends all leases.
        return None
    expires, closers = story.expires_ms(first), story.closers(first)
    if not closers:
        if second.granted_ms < expires:
            return f"{first.owner} has it until {expires}, {second.owner} got it at {second.granted_ms}"
        return None
    over = min(expires, min(each.invoked_wall_ns for each in closers) / MS)
    if second.told_wall_ms < over:
        return f"{first.owner} has it until {over:.3f} at least, {second.owner} was told at {second.told_wall_ms:.3f}"
    return None


def _violation(what: str, first: Delivery, second: Delivery) -> LeaseViolation:
    operations = (first.consume, second.consume)
    return LeaseViolation(invariant="S8", what=f"message {first.place}: {what}", operations=operations)
