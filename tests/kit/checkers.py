"""Judges a history against the invariants of the log, S1 to S7.

A history that is not whole is never called valid: its verdicts are *unknown*, with what looks wrong as a hint. The
definitions stand in the modules of `tests.kit.checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tests.kit.checks import s1, s2, s3, s4, s5, s6, s7
from tests.kit.checks.basis import FinalMessage, FinalPartition, FinalRead, Violation
from tests.kit.history import History, Operation

__all__ = [
    "CHECKS",
    "FinalMessage",
    "FinalPartition",
    "FinalRead",
    "Judgement",
    "Verdict",
    "Violation",
    "assert_valid",
    "judge",
]

Check = Callable[[Sequence[Operation], FinalRead], list[Violation]]

CHECKS: Mapping[str, Check] = {
    "S1": s1.check,
    "S2": s2.check,
    "S3": s3.check,
    "S4": s4.check,
    "S5": s5.check,
    "S6": s6.check,
    "S7": s7.check,
}


class Verdict(Enum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What was found for one invariant; for a cut history the violations are suspicions only."""

    verdict: Verdict
    violations: tuple[Violation, ...] = ()


def judge(history: History, final: FinalRead) -> dict[str, Judgement]:
    judgements = {}
    for name, check in CHECKS.items():
        violations = tuple(check(history.operations, final))
        verdict = Verdict.INVALID if violations else Verdict.VALID
        # A lost line may be the attempt that would explain what was read.
        judgements[name] = Judgement(verdict=Verdict.UNKNOWN if history.cut else verdict, violations=violations)
    return judgements


def assert_valid(history: History, final: FinalRead) -> None:
    """Fails with the counter-examples, or with what is missing from the history."""
    wrong = [
        f"{name} {judgement.verdict.value} ({len(judgement.violations)}): "
        + "; ".join(map(str, judgement.violations[:5]))
        for name, judgement in judge(history, final).items()
        if judgement.verdict is not Verdict.VALID
    ]
    if wrong:
        raise AssertionError("\n".join([*(f"cut: {reason}" for reason in history.cut[:10]), *wrong]))
