"""L5: a dead owner's message is leased again within its lease and two seconds more.

One that failed by that waits for its back-off, too. Only the first message of each key is looked at:
the others wait for it.
"""

from __future__ import annotations

from collections.abc import Collection

from tests.kit.lease_checks.basis import Delivery, LeaseTruth, LeaseViolation, Story

GRACE_MS = 2000


def check(story: Story, truth: LeaseTruth, dead_owners: Collection[str]) -> list[LeaseViolation]:
    violations = []
    for delivery in abandoned(story, dead_owners):
        later = [each for each in story.deliveries[delivery.place] if each.token > delivery.token]
        allowed = story.expires_ms(delivery) + GRACE_MS
        if story.was_alone(delivery):
            allowed += truth.rules.max_delay_ms(delivery.failures + 1)
        if not later:
            if delivery.place not in story.dead and not story.unknown:
                violations.append(_violation("was never leased again", delivery))
        elif later[0].number == delivery.number + 1 and later[0].granted_ms > allowed:
            late = later[0].granted_ms - story.expires_ms(delivery)
            violations.append(_violation(f"was leased again {late} ms after its lease", delivery))
    return violations


def abandoned(story: Story, dead_owners: Collection[str]) -> list[Delivery]:
    """What dead owners had in hand and said nothing about: the first of each key."""
    found = []
    for place, deliveries in story.deliveries.items():
        key = story.key(place)
        for delivery in deliveries:
            if delivery.owner not in dead_owners or story.closers(delivery) or delivery.epoch != story.epoch:
                continue
            if key is None or not story.in_front(delivery):
                found.append(delivery)
    return found


def _violation(what: str, delivery: Delivery) -> LeaseViolation:
    shown = f"message {delivery.place} of {delivery.owner}, who is dead, {what}"
    return LeaseViolation(invariant="L5", what=shown, operations=(delivery.consume,))
