"""S20: each offset is in exactly one live segment or still hot, and a segment holds what was sealed.

COLD observations are the messages in the files of live segments. A gap between two segments is correct if the final
read has its messages: they are hot. Messages below the log start are not checked.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.row_matching import Array, found_at
from prove.checker.s21_segment_files import log_start, segment
from prove.checker.violation_text import place, shown, some
from prove.history.tables import CallOutcome, ReaderKind, TableColumns, Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["segment"]
    live = rows.where(rows.live).sorted_by("first", "end")
    seen = tables["seen"]
    start = log_start(tables)
    cold = _from(seen, ReaderKind.COLD, start)
    final = _from(seen, ReaderKind.FINAL, start)
    is_tiered = len(live) or len(cold)
    found = _tiles(live, run) + _sealed(live, run, start) + _twice(cold, run) if is_tiered else []
    if _is_whole(tables):
        found += _places(live, cold, final, run) if is_tiered else []
        found += _nowhere(tables, final, run, start)
    return found[:MOST]


def _from(seen: TableColumns, reader: ReaderKind, start: int) -> TableColumns:
    chosen = np.flatnonzero((seen.reader == reader) & (seen.offset >= start))
    return seen.where(chosen[np.argsort(seen.offset[chosen], kind="stable")])


def _is_whole(tables: Tables) -> bool:
    reads = tables["read"]
    return bool(((reads.reader == ReaderKind.FINAL) & (reads.outcome == CallOutcome.OK)).any())


def _tiles(live: TableColumns, run: RunInfo) -> list[Violation]:
    """Check that no two live segments share an offset."""
    if len(live) < 2:
        return []
    reached = np.maximum.accumulate(live.end)[:-1]
    return [
        _violation(f"the live segment {segment(live, at + 1, run)} begins before {reached[at]}, where another ends")
        for at in np.flatnonzero(live.first[1:] < reached)[:MOST].tolist()
    ]


def _sealed(live: TableColumns, run: RunInfo, start: int) -> list[Violation]:
    """Check that each file holds what was sealed. S21 reports missing files."""
    there = live.exists & (live.end > start)
    wrong = {
        "says {rows} rows": live.rows != live.end - live.first,
        "has {read_rows} rows in its file": there & (live.read_rows != live.end - live.first),
        "was sealed with another hash than its file has": there & (live.sealed_hash != live.read_hash),
    }
    return [
        _violation(f"segment {segment(live, at, run)} " + what.format(rows=live.rows[at], read_rows=live.read_rows[at]))
        for what, chosen in wrong.items()
        for at in np.flatnonzero(chosen)[:MOST].tolist()
    ]


def _twice(cold: TableColumns, run: RunInfo) -> list[Violation]:
    return [
        _violation(f"{shown(run, cold, at)} is in the live files twice", place(run, cold, at))
        for at in np.flatnonzero(cold.offset[1:] == cold.offset[:-1])[:MOST].tolist()
    ]


def _places(live: TableColumns, cold: TableColumns, final: TableColumns, run: RunInfo) -> list[Violation]:
    """Check that the final read has exactly the messages of the files."""
    found = []
    at = found_at(final.offset, cold.offset)
    other = (at >= 0) & (final.hash[at] != cold.hash) if len(final) else np.zeros(len(cold), np.bool_)
    for what, chosen, rows in (
        ("is in a live file, and not in the final read", at < 0, cold),
        ("has other bytes in its file than in the final read", other, cold),
        (
            "is not in the file of its live segment",
            _covered(live, final) & (found_at(cold.offset, final.offset) < 0),
            final,
        ),
    ):
        found += [
            _violation(f"{shown(run, rows, row)} {what}", place(run, rows, row))
            for row in np.flatnonzero(chosen)[:MOST].tolist()
        ]
    return found


def _covered(live: TableColumns, rows: TableColumns) -> Array:
    """Return whether a live segment with an existing file covers each offset."""
    there = live.where(live.exists)
    if not len(there):
        return np.zeros(len(rows), np.bool_)
    at = np.searchsorted(there.first, rows.offset, "right") - 1
    return (at >= 0) & (rows.offset < there.end[at])


def _nowhere(tables: Tables, final: TableColumns, run: RunInfo, start: int) -> list[Violation]:
    """Check that no offset between log start and high watermark is missing, hot or cold."""
    reads = tables["read"]
    whole = reads.where((reads.reader == ReaderKind.FINAL) & (reads.outcome == CallOutcome.OK))
    end = int(whole.high_watermark.max())
    edges = np.concatenate([[start - 1], np.unique(final.offset[final.offset < end]), [max(end, start)]])
    gaps = np.flatnonzero(np.diff(edges) > 1)
    lost = int((np.diff(edges) - 1)[gaps].sum())
    if not lost:
        return []
    where = f"{run.name(whole.topic[0])}/{int(whole.partition[0])}"
    what = f"{lost} messages of {where} are neither hot nor cold, after offsets such as {some(edges[gaps])}"
    return [_violation(what, (run.name(whole.topic[0]), int(whole.partition[0]), int(edges[gaps[0]]) + 1))]


def _violation(what: str, where: tuple[str, int, int] | None = None) -> Violation:
    return Violation(invariant="S20", what=what, place=where)


INVARIANT = Invariant(
    name="S20",
    says="each offset is in exactly one live segment or hot; a segment holds what was sealed",
    scope=CheckScope.COLD,
    check=check,
    about=rows_of("segment"),
)
