"""S9: an answer with a stale token, of another owner or after the lease's end is refused, which changes nothing.

A repeat of what was said before gets the same answer again, also when the lease is closed; after a seek it does not.
What a refused nack would have changed shows in the failures (S12).
"""

from __future__ import annotations

from tests.kit.lease_checks.basis import FINISHING, MS, Delivery, LeaseTruth, LeaseViolation, Story
from tests.kit.lease_history import LeaseOperation


def check(story: Story, truth: LeaseTruth) -> list[LeaseViolation]:
    violations = []
    for (partition, token, offset), said in story.answers.items():
        delivery = story.by_lease.get((partition, token, offset))
        for number, answer in enumerate(said):
            if answer.outcome != "ok":
                continue
            repeated = any(each.happened and each.op == answer.op for each in said[:number])
            what = _accepted(story, delivery, answer, offset, repeated=repeated)
            if what:
                violations.append(_violation(what, (partition, offset), answer))
    for (partition, token), extends in story.extends.items():
        for extend in extends:
            held = story.lease_offsets.get((partition, token), [-1])
            what = _extended(story, story.by_lease.get((partition, token, held[0])), extend, extends)
            if what:
                violations.append(_violation(what, (partition, -1), extend))
    return violations + _refused(story, truth)


def _accepted(
    story: Story, delivery: Delivery | None, answer: LeaseOperation, offset: int, *, repeated: bool
) -> str | None:
    if delivery is None:
        mine = any(each.owner == answer.owner for each in story.unknown)
        return None if mine else f"{answer.op} of token {answer.token}, which {answer.owner} never got, was accepted"
    if delivery.owner != answer.owner:
        return f"{answer.op} by {answer.owner} of the lease of {delivery.owner} was accepted"
    if any(_between(seek, delivery, answer) for seek in story.seeks):
        return f"{answer.op} of a lease from before a seek was accepted"
    if repeated:
        return None
    for later in story.deliveries[delivery.place]:
        if later.token > delivery.token and later.told_ns < answer.invoked_ns:
            return f"{answer.op} with token {delivery.token} was accepted, and {later.owner} had token {later.token}"
    if answer.invoked_wall_ns / MS > story.latest_ms(delivery):
        return f"{answer.op} was accepted after the lease's end"
    return None


def _extended(
    story: Story, delivery: Delivery | None, extend: LeaseOperation, extends: list[LeaseOperation]
) -> str | None:
    if extend.outcome != "ok" or delivery is None:
        return None
    before = [each for each in extends if each.happened and each.invoked_ns < extend.invoked_ns]
    if any(each.outcome == "info" for each in before):
        return None
    until = max([delivery.expires_ms, *(each.expires_ms or 0 for each in before)])
    if delivery.owner != extend.owner:
        return f"an extend by {extend.owner} of the lease of {delivery.owner} was accepted"
    if extend.invoked_wall_ns / MS > until:
        return "an extend was accepted after the lease's end"
    if any(_between(seek, delivery, extend) for seek in story.seeks):
        return "an extend of a lease from before a seek was accepted"
    return None


def _refused(story: Story, truth: LeaseTruth) -> list[LeaseViolation]:
    """Messages that only a refused ack can have finished."""
    violations = []
    for place, deliveries in story.deliveries.items():
        if place in story.dead or story.finishes(place, story.epoch):
            continue
        refused = [
            each
            for delivery in deliveries
            if delivery.epoch == story.epoch
            for each in story.said(delivery)
            if each.outcome == "fail" and each.op in FINISHING
        ]
        unfinished = any(
            part.partition == place[0] and place[1] >= part.committed and part.finished < part.high_watermark
            for part in truth.progress
        )
        if refused and not unfinished:
            violations.append(_violation("a refused ack finished it", place, refused[0]))
    return violations


def _between(seek: LeaseOperation, delivery: Delivery, answer: LeaseOperation) -> bool:
    done = seek.completed_ns
    return done is not None and delivery.consume.invoked_ns < seek.invoked_ns and done < answer.invoked_ns


def _violation(what: str, place: tuple[int, int], answer: LeaseOperation) -> LeaseViolation:
    return LeaseViolation(invariant="S9", what=f"message {place}: {what}", operations=(answer,))
