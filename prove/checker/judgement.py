"""Judges a run against all invariants: `judge` a folder or what was loaded from it, `judge_tables` what is in memory.

A run of which anything is missing is never called valid: its verdicts are *unknown*, with what looks wrong as a hint.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from prove.checker.catalog import INVARIANTS
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.scopes import Key, instances, placed
from prove.history.loading import History, load
from prove.history.tables import Tables

_T = TypeVar("_T")


class CheckVerdict(Enum):
    """Of an invariant in a run."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What was found for one invariant. Where the verdict is *unknown*, the violations are suspicions only."""

    verdict: CheckVerdict
    violations: tuple[Violation, ...] = ()
    doubts: tuple[str, ...] = ()
    """Why nothing can be concluded, where that is so."""
    seconds: float = 0.0
    rows: int = 0
    """Rows that it is about; 0: this run did not touch it."""
    worst: float | None = None
    """Seconds, where it promises a time and tells the most that it took."""


@dataclass(kw_only=True)
class ViolationTally:
    """What was found for one invariant so far, in some of its instances."""

    violations: list[Violation] = field(default_factory=list)
    suspicions: list[Violation] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    seconds: float = 0.0
    rows: int = 0
    worst: float | None = None

    def add(self, other: ViolationTally) -> None:
        if other.violations or other.suspicions or other.doubts:
            self.violations = _few([*self.violations, *other.violations])
            self.suspicions = _few([*self.suspicions, *other.suspicions])
            self.doubts = _few([*self.doubts, *other.doubts])
        self.seconds += other.seconds
        self.rows += other.rows
        self.worst = max((each for each in (self.worst, other.worst) if each is not None), default=None)

    def judgement(self, cut: Sequence[str]) -> Judgement:
        found, doubts = [*self.violations, *self.suspicions], (*cut[:MOST], *self.doubts)
        sure = self.violations and not cut
        verdict = CheckVerdict.INVALID if sure else CheckVerdict.UNKNOWN if doubts else CheckVerdict.VALID
        return Judgement(
            verdict=verdict,
            violations=tuple(_few(found)),
            doubts=doubts,
            seconds=self.seconds,
            rows=self.rows,
            worst=self.worst,
        )


Tallies = dict[str, ViolationTally]


def judge(source: Path | History, run: RunInfo | None = None) -> dict[str, Judgement]:
    """By the invariants' names. `run` instead of what the folder says of itself."""
    history = load(source) if isinstance(source, Path) else source
    return judge_tables(history.tables, run or history.run, cut=history.cut)


def judge_tables(
    tables: Tables, run: RunInfo, *, cut: Sequence[str] = (), invariants: Iterable[Invariant] = INVARIANTS
) -> dict[str, Judgement]:
    """What is in memory. `cut` says what is missing of it."""
    return judgements(tallied(placed(tables), run, invariants), cut, invariants)


def judgements(found: Tallies, cut: Sequence[str], invariants: Iterable[Invariant]) -> dict[str, Judgement]:
    return {each.name: found.get(each.name, ViolationTally()).judgement(cut) for each in invariants}


def tallied(
    tables: Tables, run: RunInfo, invariants: Iterable[Invariant], *, groups: Sequence[Key] | None = None
) -> Tallies:
    """Judges tables that are placed already: a whole run, or a part that has whole instances."""
    found: Tallies = {}
    for scope, checks in _by_scope(invariants):
        for part in instances(scope, tables, groups):
            rows = sum(map(len, part.by_name.values()))
            for each in checks:
                tally = found.get(each.name)
                if tally is None:
                    tally = found[each.name] = ViolationTally()
                tally.rows += rows if each.about is None else each.about(part)
                _check(each, part, run, tally)
    return found


def assert_valid(judged: dict[str, Judgement]) -> None:
    """Fails with the counter-examples, or with what is missing."""
    wrong = [
        f"{name} {each.verdict.value} ({len(each.violations)}): "
        + "; ".join([*each.doubts[:3], *map(str, each.violations[:5])])
        for name, each in judged.items()
        if each.verdict is not CheckVerdict.VALID
    ]
    if wrong:
        raise AssertionError("\n".join(wrong))


def _by_scope(invariants: Iterable[Invariant]) -> Iterator[tuple[CheckScope, list[Invariant]]]:
    ordered = sorted(invariants, key=lambda each: each.scope.value)
    return ((scope, list(those)) for scope, those in groupby(ordered, key=lambda each: each.scope))


def _check(invariant: Invariant, tables: Tables, run: RunInfo, tally: ViolationTally) -> None:
    """Adds what one instance gives."""
    began = time.perf_counter()
    try:
        found = invariant.check(tables, run)
        doubt = invariant.doubt(tables, run)
        tally.add(ViolationTally(worst=invariant.worst(tables, run)))
    except Exception as exc:
        # One check that cannot cope must neither pass for a proof, nor cost the others of a run of hours.
        found, doubt = [], f"the check failed: {type(exc).__name__}: {exc}"
    if doubt is not None:
        tally.add(ViolationTally(doubts=[doubt], suspicions=found))
    elif found:
        tally.add(ViolationTally(violations=found))
    tally.seconds += time.perf_counter() - began


def _few(found: Iterable[_T]) -> list[_T]:
    """Each once, and not too many."""
    return list(dict.fromkeys(found))[:MOST]
