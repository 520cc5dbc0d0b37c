"""S22: reads across hot and cold have no gap and no duplicate, during tiering, compaction and expiry.

Each read call returns every offset once, from the requested offset or from the log start. At the end, the messages of
the files and the hot tail behind them equal the final read. Files may still hold messages below the log start.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.lazy_columns import Picked, pick
from prove.checker.read_results import answered, broken_inside, broken_start, final_ends
from prove.checker.row_matching import beginnings, differs, found_at
from prove.checker.violation_text import calls, place, shown
from prove.history.tables import ReaderKind, Tables

_READS = (ReaderKind.FETCH, ReaderKind.REPLAY, ReaderKind.SPARK)


def check_reads(tables: Tables, run: RunInfo) -> list[Violation]:
    return (broken_start("S22", answered(tables, _READS), run) + broken_inside("S22", tables, run, _READS))[:MOST]


def check_files(tables: Tables, run: RunInfo) -> list[Violation]:
    seen, ends = pick(tables, "seen"), final_ends(pick(tables, "read"))
    cold = seen.where(seen.reader == ReaderKind.COLD)
    if ends is None or not len(cold):
        return []
    cold = cold.where(cold.offset >= ends.log_start).sorted_by("offset", "process", "counter")
    final = seen.where(seen.reader == ReaderKind.FINAL).sorted_by("offset")
    found = _twice(cold, run) + _otherwise(cold, final, run) + _between(cold, final, run)
    return found[:MOST]


def _twice(cold: Picked, run: RunInfo) -> list[Violation]:
    rows = np.flatnonzero(~differs(cold.offset, cold.process, cold.counter))[:MOST]
    return [_violation(f"the files have {shown(run, cold, row)} twice", cold, int(row), run) for row in rows]


def _otherwise(cold: Picked, final: Picked, run: RunInfo) -> list[Violation]:
    """Return messages of the files that the final read does not have, or has with other bytes."""
    at = found_at(final.offset, cold.offset)
    wrong = at < 0
    if len(final):
        wrong |= (cold.hash != final.hash[at]) | ((cold.key != final.key[at]) & (cold.key != 0))
    found = []
    for row in np.flatnonzero(wrong)[:MOST]:
        instead = f"{run.name(final.hash[at[row]])} there" if at[row] >= 0 else "nothing there"
        what = f"the files have {run.name(cold.hash[row])} at {shown(run, cold, row)}, the final read has {instead}"
        found.append(_violation(what, cold, int(row), run))
    return found


def _between(cold: Picked, final: Picked, run: RunInfo) -> list[Violation]:
    """Return messages between the first and the last message of the files that are in no file. The hot tail is
    contiguous."""
    if not len(cold):
        return []
    once = cold.offset[beginnings(cold.offset)]
    inside = final.where((final.offset > once[0]) & (final.offset < once[-1]))
    missing = np.flatnonzero(found_at(once, inside.offset) < 0)[:MOST]
    what = "is in no file, but others before and behind it are"
    return [_violation(f"{shown(run, inside, row)} {what}", inside, int(row), run) for row in missing]


def _violation(what: str, table: Picked, row: int, run: RunInfo) -> Violation:
    return Violation(invariant="S22", what=what, calls=calls(run, table, [row]), place=place(run, table, row))


_SAYS = "Reads across hot and cold have no gap and no duplicate during tiering, compaction and expiry."
INVARIANTS = (
    # Reads concern it if files exist.
    Invariant(name="S22", says=_SAYS, scope=CheckScope.LOG, check=check_reads, about=lambda tables: 0),
    Invariant(name="S22", says=_SAYS, scope=CheckScope.COLD, check=check_files, about=rows_of("segment")),
)
