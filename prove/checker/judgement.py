"""Judges a run against all invariants: `judge` for a folder or a loaded history, `judge_tables` for tables in memory.

An incomplete run is never called valid: its verdicts are *unknown*, and the violations are only hints.
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
    """The verdict on one invariant in a run."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result for one invariant. If the verdict is *unknown*, the violations are only suspicions."""

    verdict: CheckVerdict
    violations: tuple[Violation, ...] = ()
    doubts: tuple[str, ...] = ()
    """Reasons why nothing can be concluded, if there are any."""
    seconds: float = 0.0
    rows: int = 0
    """The number of rows that concern the invariant; 0 if this run did not test it."""
    worst: float | None = None
    """The longest time in seconds, for an invariant that promises a time."""


@dataclass(kw_only=True)
class ViolationTally:
    """The findings for one invariant so far, from some of its instances."""

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
    """Return the judgement of each invariant by name. `run` overrides the description in the folder."""
    history = load(source) if isinstance(source, Path) else source
    return judge_tables(history.tables, run or history.run, cut=history.cut)


def judge_tables(
    tables: Tables, run: RunInfo, *, cut: Sequence[str] = (), invariants: Iterable[Invariant] = INVARIANTS
) -> dict[str, Judgement]:
    """Judge tables in memory. `cut` lists what is missing from them."""
    return judgements(tallied(placed(tables), run, invariants), cut, invariants)


def judgements(found: Tallies, cut: Sequence[str], invariants: Iterable[Invariant]) -> dict[str, Judgement]:
    return {each.name: found.get(each.name, ViolationTally()).judgement(cut) for each in invariants}


def tallied(
    tables: Tables, run: RunInfo, invariants: Iterable[Invariant], *, groups: Sequence[Key] | None = None
) -> Tallies:
    """Judge tables whose attempts are already located: a whole run, or a part with whole instances of its scopes."""
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
    """Fail with the counter-examples, or with the reasons why the run is incomplete."""
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
    """Add the findings of one instance to the tally."""
    began = time.perf_counter()
    try:
        found = invariant.check(tables, run)
        doubt = invariant.doubt(tables, run)
        tally.add(ViolationTally(worst=invariant.worst(tables, run)))
    except Exception as exc:
        # A check that raises must not count as a proof, and must not discard the other results of a run of hours.
        found, doubt = [], f"the check failed: {type(exc).__name__}: {exc}"
    if doubt is not None:
        tally.add(ViolationTally(doubts=[doubt], suspicions=found))
    elif found:
        tally.add(ViolationTally(violations=found))
    tally.seconds += time.perf_counter() - began


def _few(found: Iterable[_T]) -> list[_T]:
    """Return the distinct items, up to a limit."""
    return list(dict.fromkeys(found))[:MOST]
