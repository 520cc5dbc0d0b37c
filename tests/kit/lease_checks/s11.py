"""S11: after the drain each message is exactly one of acked, dead, discarded, filtered, expired or cut, and counted.

None is leased, waiting or skipped for ever.
"""

from __future__ import annotations

from collections import Counter

from tests.kit.lease_checks.basis import LeaseTruth, LeaseViolation, Place, Story
from tests.kit.lease_history import ProgressSeen


def check(story: Story, truth: LeaseTruth) -> list[LeaseViolation]:
    violations = []
    letters = Counter((letter.partition, letter.offset) for letter in truth.dead)
    if not story.seeks:
        violations += [_violation(f"{place} is {times} dead letters") for place, times in letters.items() if times > 1]
    for part in truth.progress:
        violations += _drained(part)
        violations += _partition(story, truth, part)
    found = {place[0] for place in truth.keys} - {part.partition for part in truth.progress}
    return violations + [_violation(f"nothing is known of partition {partition}") for partition in sorted(found)]


def _drained(part: ProgressSeen) -> list[LeaseViolation]:
    where = f"partition {part.partition}"
    if part.leased or part.waiting or part.skipped or part.frontier < part.high_watermark:
        return [_violation(f"{where}: not drained: {part}")]
    if part.committed != part.high_watermark:
        return [_violation(f"{where}: committed {part.committed} of {part.high_watermark}")]
    return []


def _partition(story: Story, truth: LeaseTruth, part: ProgressSeen) -> list[LeaseViolation]:
    violations = []
    sure = {"acked": 0, "discarded": 0}
    maybe = {"acked": 0, "discarded": 0}
    lost: list[Place] = []
    for place in truth.keys:
        if place[0] != part.partition or place[1] < part.start:
            continue
        ends = _ends(story, place)
        if place in story.dead and True in ends.values() and not story.seeks:
            violations.append(_violation(f"message {place} is {' and '.join(ends)}, and a dead letter"))
        if not ends and place not in story.dead:
            lost.append(place)
        for name, is_sure in ends.items():
            (sure if is_sure else maybe)[name] += 1
    passed = part.filtered + part.expired + part.cut
    if len(lost) > passed:
        violations.append(
            _violation(f"{len(lost)} messages ended as nothing, such as {lost[:3]}; {passed} were passed")
        )
    for name in sure:
        counted = getattr(part, name)
        if not sure[name] <= counted <= sure[name] + maybe[name]:
            what = f"partition {part.partition} counts {counted} {name}; {sure[name]} surely, {maybe[name]} perhaps"
            violations.append(_violation(what))
    dead = sum(1 for place in story.dead if place[0] == part.partition)
    if part.dead != dead and not story.seeks:
        violations.append(_violation(f"partition {part.partition} counts {part.dead} dead, and has {dead} letters"))
    return violations


def _ends(story: Story, place: Place) -> dict[str, bool]:
    """How the message may have ended in the last epoch; True: surely."""
    ends: dict[str, bool] = {}
    for answer in story.finishes(place, story.epoch):
        if answer.op != "fail":
            name = "acked" if answer.op == "ack" else "discarded"
            ends[name] = ends.get(name, False) or answer.outcome == "ok"
    return ends


def _violation(what: str) -> LeaseViolation:
    return LeaseViolation(invariant="S11", what=what)
