"""Judges one simulated run: all invariants but those of liveness that need a laboratory's real time."""

from __future__ import annotations

from prove.checker.catalog import INVARIANTS
from prove.checker.judgement import CheckVerdict, judge_tables
from prove.simulation.run import Simulated

# Within seconds of faults that leave nobody to ask, or nobody to answer, L3 to L7 say nothing; and no run here has
# files of segments, or samples of figures.
_LEFT_OUT = frozenset({"L3", "L4", "L5", "L6", "L7", "S20", "S21", "S22"})
JUDGED = tuple(each for each in INVARIANTS if each.name not in _LEFT_OUT)


def judged(simulated: Simulated) -> list[str]:
    """What is wrong, if anything: counter-examples, exceptions that the engine did not expect, checks that failed."""
    found = [f"unexpected: {each}" for each in simulated.unexpected]
    for name, judgement in judge_tables(simulated.tables, simulated.run, invariants=JUDGED).items():
        if judgement.verdict is CheckVerdict.INVALID:
            found += map(str, judgement.violations[:3])
        found += [f"{name}: {doubt}" for doubt in judgement.doubts if doubt.startswith("the check failed")]
    return found
