"""Checks of one read call for S5, S6 and S22: every offset once, without a gap, from the requested offset.

The rows of a response are not stored in order, but the first row that arrived must have the lowest offset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prove.checker.enum_codes import OUTCOME, READER
from prove.checker.invariant import MOST, RunInfo, Violation
from prove.checker.lazy_columns import Picked, pick, read_by
from prove.checker.row_matching import Array, beginnings, found_at, mixed, true_at
from prove.checker.violation_text import call, place
from prove.history.tables import ReaderKind, Tables


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Log start and high watermark of one partition in the final read. The final read may take several calls, and the
    log start may rise between them."""

    first_start: int
    log_start: int
    high_watermark: int


def final_ends(reads: Picked) -> Ends | None:
    """Return the ends of a partition; None if it was not read."""
    ended = reads.where((reads.reader == READER.FINAL) & (reads.outcome == OUTCOME.OK))
    if not len(ended):
        return None
    return Ends(
        first_start=int(ended.log_start.min()),
        log_start=int(ended.log_start.max()),
        high_watermark=int(ended.high_watermark.max()),
    )


def ends_of(tables: Tables) -> Ends | None:
    """Return the ends of the scope's partition, cached for all its checks."""
    kept = tables.__dict__
    if "_ends" not in kept:
        kept["_ends"] = final_ends(pick(tables, "read"))
    found: Ends | None = kept["_ends"]
    return found


def final_read(tables: Tables) -> Picked:
    """Return the final read by offset, cached for all checks of the scope."""
    kept = tables.__dict__
    if "_final" not in kept:
        seen = pick(tables, "seen")
        kept["_final"] = seen.where(seen.reader == READER.FINAL).sorted_by("offset")
    found: Picked = kept["_final"]
    return found


def answered(tables: Tables, readers: tuple[ReaderKind, ...]) -> Picked:
    """Return the reads that succeeded."""
    reads = pick(tables, "read")
    return reads.where(read_by(reads, readers) & (reads.outcome == OUTCOME.OK))


def broken_inside(name: str, tables: Tables, run: RunInfo, readers: tuple[ReaderKind, ...]) -> list[Violation]:
    """Return violations of calls whose messages have a gap, repeat, or do not begin with the lowest offset."""
    seen = pick(tables, "seen")
    seen = seen.where(read_by(seen, readers))
    if not len(seen):
        return []
    seen = seen.sorted_by("process", "counter", "offset")
    begins = beginnings(seen.process, seen.counter)
    step = np.diff(seen.offset)
    within = np.ones(len(step), np.bool_)
    within[begins[1:] - 1] = False
    suspects = true_at(within & (step != 1)) + 1
    reads = answered(tables, readers)
    suspects = suspects[~_retired(seen, suspects, reads)]
    return [_gap(name, seen, int(row), run) for row in suspects[:MOST]] + _turned(name, seen, begins, reads, run)


def broken_start(name: str, reads: Picked, run: RunInfo) -> list[Violation]:
    """Return violations of calls that did not begin at the requested offset. Messages below the log start are retired,
    not skipped."""
    if not len(reads):
        return []
    reads = reads.where((reads.offset >= 0) & (reads.count > 0))
    skipped = reads.first > np.maximum(reads.offset, reads.log_start)
    found = []
    for row in true_at(skipped | (reads.first < reads.offset))[:MOST]:
        asked, first, start = int(reads.offset[row]), int(reads.first[row]), int(reads.log_start[row])
        what = f"asked for offset {asked} (log start {start}), a {_kind(reads, row)} began at {first}"
        found.append(Violation(invariant=name, what=what, calls=(call(run, reads, row),), place=place(run, reads, row)))
    return found


def _retired(seen: Picked, rows: Array, reads: Picked) -> Array:
    """Return which gaps end at or below the log start that the same call returned."""
    if not len(rows) or not len(reads):
        return np.zeros(len(rows), np.bool_)
    order = np.argsort(codes := mixed(reads.process, reads.counter))
    at = found_at(codes[order], mixed(seen.process[rows], seen.counter[rows]))
    forward = seen.offset[rows] > seen.offset[rows - 1]
    return np.asarray(forward & (at >= 0) & (seen.offset[rows] <= reads.log_start[order[at]]))


def _gap(name: str, seen: Picked, row: int, run: RunInfo) -> Violation:
    before, after = int(seen.offset[row - 1]), int(seen.offset[row])
    how = f"returned offset {after} twice" if before == after else f"went from offset {before} to {after}"
    what = f"a {_kind(seen, row)} {how}"
    return Violation(invariant=name, what=what, calls=(call(run, seen, row),), place=place(run, seen, row))


def _turned(name: str, seen: Picked, begins: Array, reads: Picked, run: RunInfo) -> list[Violation]:
    reads = reads.where(reads.first >= 0)
    lowest = seen.where(begins)
    order = np.argsort(codes := mixed(lowest.process, lowest.counter))
    at = found_at(codes[order], mixed(reads.process, reads.counter))
    turned = true_at((at >= 0) & (lowest.offset[order[at]] < reads.first))
    found = []
    for row in turned[:MOST]:
        low = int(lowest.offset[order[at[row]]])
        what = f"a {_kind(reads, row)} returned offset {low} after {int(reads.first[row])}"
        found.append(Violation(invariant=name, what=what, calls=(call(run, reads, row),), place=place(run, reads, row)))
    return found


def _kind(table: Picked, row: int) -> str:
    return f"{ReaderKind(int(table.reader[row])).name.lower()} read"
