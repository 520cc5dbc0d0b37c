"""S21: the files of live segments exist: an unknown commit deletes nothing, and the sweep deletes only orphans.

A segment that is wholly below the log start cannot be read, and its file may be gone.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.row_matching import Array
from prove.history.tables import CallOutcome, TableColumns, Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["segment"]
    gone = rows.live & ~rows.exists & (rows.end > log_start(tables))
    return [
        Violation(
            invariant="S21",
            what=f"the file of the live segment {segment(rows, at, run)} is missing",
            place=(run.name(rows.topic[at]), int(rows.partition[at]), int(rows.first[at])),
        )
        for at in np.flatnonzero(gone)[:MOST].tolist()
    ]


def log_start(tables: Tables) -> int:
    """Return the highest known log start."""
    reads = tables["read"]
    return max(0, _most(tables["cut"].end), _most(reads.log_start[reads.outcome == CallOutcome.OK]))


def segment(rows: TableColumns, at: int, run: RunInfo) -> str:
    return f"{run.name(rows.topic[at])}/{int(rows.partition[at])}@{int(rows.first[at])}–{int(rows.end[at])}"


def _most(numbers: Array) -> int:
    return int(numbers.max()) if len(numbers) else 0


INVARIANT = Invariant(
    name="S21", says="the files of live segments exist", scope=CheckScope.COLD, check=check, about=rows_of("segment")
)
