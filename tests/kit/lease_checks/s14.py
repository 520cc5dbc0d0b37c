"""S14: conservation: whenever it is asked, what a group has considered is finished, leased, waiting or skipped.

Redrive is not looked at here.
"""

from __future__ import annotations

from tests.kit.lease_checks.basis import LeaseTruth, LeaseViolation, Story
from tests.kit.lease_history import LeaseOperation, ProgressSeen


def check(story: Story, truth: LeaseTruth) -> list[LeaseViolation]:
    violations = []
    for sample in story.samples:
        violations += [_violation(part, sample) for part in sample.progress if not _balanced(part)]
    violations += [_violation(part) for part in truth.progress if not _balanced(part)]
    for part in truth.progress:
        published = sum(1 for place in truth.keys if place[0] == part.partition)
        if part.high_watermark != published:
            what = f"partition {part.partition}: {published} were published, {part.high_watermark} are there"
            violations.append(LeaseViolation(invariant="S14", what=what))
    return violations


def _balanced(part: ProgressSeen) -> bool:
    considered = part.finished + part.leased + part.waiting + part.skipped
    return considered == part.frontier - part.start and part.committed <= part.frontier <= part.high_watermark


def _violation(part: ProgressSeen, *shown: LeaseOperation) -> LeaseViolation:
    what = f"partition {part.partition}: the sum does not fit what was considered: {part}"
    return LeaseViolation(invariant="S14", what=what, operations=shown)
