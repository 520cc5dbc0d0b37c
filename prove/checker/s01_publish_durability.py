"""S1: every acknowledged publish is at its offset in the final read, or provably retired: below the log start.

Only acknowledged messages are checked. S23 checks whether retention was allowed to retire them.
"""

from __future__ import annotations

from prove.checker.enum_codes import OUTCOME
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lazy_columns import Picked, pick
from prove.checker.read_results import ends_of, final_read
from prove.checker.row_matching import found_at, true_at
from prove.checker.violation_text import call, calls, place, shown
from prove.history.tables import Tables


def check_answers(tables: Tables, run: RunInfo) -> list[Violation]:
    """Check that every acknowledgement names a partition and an offset."""
    attempts = pick(tables, "attempt")
    nowhere = (attempts.outcome == OUTCOME.OK) & ((attempts.partition < 0) | (attempts.offset < 0))
    rows = true_at(nowhere)[:MOST]
    return [_violation("acked without a place", attempts, int(row), run) for row in rows]


def check_log(tables: Tables, run: RunInfo) -> list[Violation]:
    attempts = pick(tables, "attempt")
    acked = attempts.where((attempts.outcome == OUTCOME.OK) & (attempts.offset >= 0))
    if not len(acked):
        return []
    ends = ends_of(tables)
    if ends is None:
        where = f"{run.name(acked.topic[0])}/{int(acked.partition[0])}"
        shows = calls(run, acked, range(min(len(acked), MOST)))
        return [
            Violation(invariant="S1", what=f"{where} is not in the final read, and has acked messages", calls=shows)
        ]
    return _lost(acked.where(acked.offset >= ends.log_start), final_read(tables), run)


def _lost(acked: Picked, final: Picked, run: RunInfo) -> list[Violation]:
    at = found_at(final.offset, acked.offset)
    if not len(final):
        return [_violation("acked, but missing", acked, row, run) for row in range(min(len(acked), MOST))]
    found = []
    for row in true_at((at < 0) | (final.hash[at] != acked.hash)):
        there = final.hash[final.offset == acked.offset[row]]
        # S5 reports an offset that occurs twice.
        if acked.hash[row] not in there:
            instead = f"{run.name(there[0])} is there" if len(there) else "nothing is there"
            found.append(_violation(f"acked, and {instead}", acked, int(row), run))
        if len(found) == MOST:
            break
    return found


def _violation(what: str, acked: Picked, row: int, run: RunInfo) -> Violation:
    what = f"{run.name(acked.hash[row])} at {shown(run, acked, row)}: {what}"
    return Violation(invariant="S1", what=what, calls=(call(run, acked, row),), place=place(run, acked, row))


_SAYS = "Every acknowledged publish is at its offset in the final read, or provably retired by retention."
INVARIANTS = (
    Invariant(name="S1", says=_SAYS, scope=CheckScope.PRODUCER, check=check_answers),
    Invariant(name="S1", says=_SAYS, scope=CheckScope.LOG, check=check_log),
)
