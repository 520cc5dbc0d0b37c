"""L3: at least 99.9 % of all publishes succeed within 5 s of their first attempt, retries included.

Attempts of one identity belong to one publish. Publishes that were refused (the client was wrong) and those that a
killed producer never finished do not count. A run that kills more than one of three servers at a time makes no such
promise, so only a run that sets the share as its target is judged.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.row_matching import Array, differs
from prove.checker.timing import MS, SECOND
from prove.checker.violation_text import calls
from prove.history.tables import CallOutcome, TableColumns, Tables

WITHIN_NS = 5 * SECOND
NEVER = np.iinfo(np.int64).max


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    wanted = run.targets.get("L3")
    if wanted is None:
        return []
    rows, firsts, took = _publishes(tables, run)
    late = took > WITHIN_NS
    if not len(took) or 1 - late.mean() >= wanted:
        return []
    found = [_violation(f"{late.sum()} of {len(took)} publishes did not succeed within 5 s of their first attempt")]
    for at in np.flatnonzero(late)[: MOST - 1].tolist():
        ended = f"succeeded {took[at] // MS} ms after its first attempt" if took[at] < NEVER else "was never ok"
        found.append(_violation(f"a publish {ended}", *calls(run, rows, [int(firsts[at])])))
    return found


def figure(tables: Tables, run: RunInfo) -> float | None:
    """Return the share of publishes that succeeded within 5 s."""
    waits = took(tables, run)
    return float((waits <= WITHIN_NS).mean()) if len(waits) else None


def took(tables: Tables, run: RunInfo) -> Array:
    """Return the nanoseconds of each publish from its first attempt to its success; `NEVER` if it never succeeded."""
    return _publishes(tables, run)[2]


def _publishes(tables: Tables, run: RunInfo) -> tuple[TableColumns, Array, Array]:
    """Return the attempts in order, the index where each publish begins, and the time each took to succeed."""
    rows = tables["attempt"]
    if not len(rows):
        return rows, np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.lexsort((rows.invoked_ns, rows.identity, rows.topic))
    identity = rows.identity[order]
    fresh = np.ones(len(order), np.bool_)
    # Without an identity, no two attempts are known to belong to the same publish.
    fresh[1:] = differs(rows.topic[order], identity) | (identity[1:] == 0)
    firsts = np.flatnonzero(fresh)
    outcome, completed = rows.outcome[order], rows.completed_ns[order]
    ok_at = np.minimum.reduceat(np.where(outcome == CallOutcome.OK, completed, NEVER), firsts)
    killed = np.isin(rows.process[order], list(run.crashed)) & (completed == 0)
    refused = np.logical_and.reduceat(outcome == CallOutcome.FAIL, firsts)
    unfinished = np.logical_or.reduceat(killed, firsts) & (ok_at == NEVER)
    counts = ~(refused | unfinished)
    began = rows.invoked_ns[order][firsts]
    took = np.where(ok_at == NEVER, NEVER, ok_at - began)
    return rows, order[firsts][counts], took[counts]


def _violation(what: str, *shown: str) -> Violation:
    return Violation(invariant="L3", what=what, calls=shown)


INVARIANT = Invariant(
    name="L3", says="publishes succeed within 5 s of their first attempt", scope=CheckScope.RUN, check=check
)
