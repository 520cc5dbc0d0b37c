"""Judges one simulated run against all invariants, except liveness invariants that need the laboratory's real time."""

from __future__ import annotations

from prove.checker.catalog import INVARIANTS
from prove.checker.judgement import CheckVerdict, judge_tables
from prove.simulation.run import Simulated

# A run has faults that leave no client or server for seconds, so L3 to L7 do not apply; and there are no segment files
# and no samples of figures.
_LEFT_OUT = frozenset({"L3", "L4", "L5", "L6", "L7", "S20", "S21", "S22"})
JUDGED = tuple(each for each in INVARIANTS if each.name not in _LEFT_OUT)


def judged(simulated: Simulated) -> list[str]:
    """Return the problems of the run, if any: counter-examples, unexpected exceptions of the engine, failed checks."""
    found = [f"unexpected: {each}" for each in simulated.unexpected]
    for name, judgement in judge_tables(simulated.tables, simulated.run, invariants=JUDGED).items():
        if judgement.verdict is CheckVerdict.INVALID:
            found += map(str, judgement.violations[:3])
        found += [f"{name}: {doubt}" for doubt in judgement.doubts if doubt.startswith("the check failed")]
    return found
