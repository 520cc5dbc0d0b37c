"""Judges a history of leases against the invariants S8 to S16, and L5 for owners that died.

A history that is not whole, or that leaves in doubt which position epoch a lease was in, is never called valid. The
definitions stand in the modules of `tests.kit.lease_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tests.kit.checkers import Verdict
from tests.kit.lease_checks import l5, s8, s9, s10, s11, s12, s13, s14, s15, s16
from tests.kit.lease_checks.basis import DeadSeen, LeaseTruth, LeaseViolation, Rules, Story
from tests.kit.lease_history import LeaseHistory

__all__ = [
    "LEASE_CHECKS",
    "DeadSeen",
    "LeaseJudgement",
    "LeaseTruth",
    "LeaseViolation",
    "Rules",
    "Story",
    "assert_leases_valid",
    "judge_leases",
]

LeaseCheck = Callable[[Story, LeaseTruth], list[LeaseViolation]]

LEASE_CHECKS: Mapping[str, LeaseCheck] = {
    "S8": s8.check,
    "S9": s9.check,
    "S10": s10.check,
    "S11": s11.check,
    "S12": s12.check,
    "S13": s13.check,
    "S14": s14.check,
    "S15": s15.check,
    "S16": s16.check,
}


@dataclass(frozen=True, kw_only=True)
class LeaseJudgement:
    """What was found for one invariant; for a cut history the violations are suspicions only."""

    verdict: Verdict
    violations: tuple[LeaseViolation, ...] = ()


def judge_leases(
    history: LeaseHistory, truth: LeaseTruth, *, dead_owners: Collection[str] = ()
) -> dict[str, LeaseJudgement]:
    """By invariant. `dead_owners` were killed and never came back (L5)."""
    story = Story(history.operations, truth)
    found = {name: check(story, truth) for name, check in LEASE_CHECKS.items()}
    found["L5"] = l5.check(story, truth, dead_owners)
    judgements = {}
    for name, violations in found.items():
        verdict = Verdict.INVALID if violations else Verdict.VALID
        doubtful = history.cut or story.doubts
        judgements[name] = LeaseJudgement(
            verdict=Verdict.UNKNOWN if doubtful else verdict, violations=tuple(violations)
        )
    return judgements


def assert_leases_valid(history: LeaseHistory, truth: LeaseTruth, *, dead_owners: Collection[str] = ()) -> None:
    """Fails with the counter-examples, or with what is missing from the history."""
    wrong = [
        f"{name} {judgement.verdict.value} ({len(judgement.violations)}): "
        + "; ".join(map(str, judgement.violations[:5]))
        for name, judgement in judge_leases(history, truth, dead_owners=dead_owners).items()
        if judgement.verdict is not Verdict.VALID
    ]
    if wrong:
        doubts = Story(history.operations, truth).doubts
        raise AssertionError("\n".join([*(f"cut: {reason}" for reason in [*history.cut, *doubts][:10]), *wrong]))
