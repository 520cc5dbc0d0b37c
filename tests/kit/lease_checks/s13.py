"""S13: no delivery before its due time: a nack, and a release with a delay, keep the message back so long."""

from __future__ import annotations

from itertools import pairwise

from tests.kit.lease_checks.basis import MS, Delivery, LeaseTruth, LeaseViolation, Story

CLOCK_SLACK_MS = 50
"""A server's idea of the database's time may be late by as much as an answer takes; it is never ahead."""


def check(story: Story, truth: LeaseTruth) -> list[LeaseViolation]:
    violations = []
    for place, deliveries in story.deliveries.items():
        for before, after in pairwise(deliveries):
            due = _due_ms(story, truth, before)
            if before.epoch == after.epoch and due is not None and after.granted_ms < due - CLOCK_SLACK_MS:
                what = f"message {place}: due at {due:.0f}, delivered at {after.granted_ms}"
                operations = (before.consume, after.consume)
                violations.append(LeaseViolation(invariant="S13", what=what, operations=operations))
    return violations


def _due_ms(story: Story, truth: LeaseTruth, delivery: Delivery) -> float | None:
    """The earliest due time that its answers allow; None where there may have been none."""
    said = [each for each in story.said(delivery) if each.happened and each.op in ("nack", "release")]
    if not any(each.outcome == "ok" for each in said):
        return None
    times = []
    for each in said:
        delay = each.delay_ms
        if delay is None:
            delay = truth.rules.min_delay_ms(delivery.failures + 1) if each.op == "nack" else 0
        times.append(each.invoked_wall_ns / MS + delay)
    return min(times)
