"""S6: the high watermark never falls, and a reader at the tail skips nothing.

A response begins at the requested offset, or at the log start, and has no gap. A process that fetches follows the log.
It may go back. If it requests an offset above all that it received, it skipped messages, unless the log start has
passed them or a refusal made it restart elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prove.checker.enum_codes import OUTCOME, READER
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lazy_columns import Picked, pick, together
from prove.checker.read_results import Ends, answered, broken_inside, broken_start, ends_of
from prove.checker.row_matching import Array, differs, true_at
from prove.checker.violation_text import call, calls, place, shown
from prove.history.tables import ReaderKind, Tables

_FETCH = (ReaderKind.FETCH,)


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    fetches = answered(tables, _FETCH)
    floors = _floors(pick(tables, "attempt"), fetches)
    ends = ends_of(tables)
    found = _falls(floors, fetches, run) + _end_below(floors, ends, run) + _beyond(pick(tables, "seen"), ends, run)
    found += broken_start("S6", fetches, run) + broken_inside("S6", tables, run, _FETCH)
    return (found + _jumps(pick(tables, "read"), run))[:MOST]


@dataclass(frozen=True, kw_only=True)
class _Floors:
    """Calls whose response implies a minimum high watermark, in the order of their responses."""

    calls: Picked
    marks: Array


def _floors(attempts: Picked, fetches: Picked) -> _Floors:
    told = attempts.where((attempts.outcome == OUTCOME.OK) & (attempts.offset >= 0))
    outcome_of_line = together(("process", "counter", "completed_ns"), told, fetches)
    marks = np.concatenate([told.offset + 1, fetches.high_watermark])
    order = np.argsort(outcome_of_line.completed_ns, kind="stable")
    return _Floors(calls=outcome_of_line.where(order), marks=marks[order])


def _falls(floors: _Floors, fetches: Picked, run: RunInfo) -> list[Violation]:
    """Compare each fetch with the watermarks that were returned before it was invoked."""
    if not len(floors.marks) or not len(fetches):
        return []
    fetches = fetches.where(fetches.high_watermark >= 0).sorted_by("invoked_ns")
    highest = np.maximum.accumulate(floors.marks)
    before = np.searchsorted(floors.calls.completed_ns, fetches.invoked_ns) - 1
    fell = true_at((before >= 0) & (fetches.high_watermark < highest[before]))
    return [
        _fell(floors, int(np.argmax(floors.marks[: before[row] + 1])), fetches, int(row), run) for row in fell[:MOST]
    ]


def _fell(floors: _Floors, top: int, fetches: Picked, row: int, run: RunInfo) -> Violation:
    what = f"the high watermark fell from {int(floors.marks[top])} to {int(fetches.high_watermark[row])}"
    shows = (call(run, floors.calls, top), call(run, fetches, row))
    return Violation(invariant="S6", what=what, calls=shows, place=place(run, fetches, row))


def _end_below(floors: _Floors, ends: Ends | None, run: RunInfo) -> list[Violation]:
    """Compare the final high watermark with all earlier ones."""
    if not len(floors.marks):
        return []
    top = int(np.argmax(floors.marks))
    end = None if ends is None else ends.high_watermark
    if end is not None and end >= floors.marks[top]:
        return []
    what = f"the high watermark fell from {int(floors.marks[top])} to {end} in the final read"
    return [Violation(invariant="S6", what=what, calls=(call(run, floors.calls, top),))]


def _beyond(seen: Picked, ends: Ends | None, run: RunInfo) -> list[Violation]:
    """Check that every observed message is below the high watermark of its response and of the end.

    S5 checks the final read.
    """
    if ends is None:
        return []
    above = true_at((seen.offset >= ends.high_watermark) & (seen.reader != READER.FINAL))[:MOST]
    what = f"was seen, but the high watermark is {ends.high_watermark} in the final read"
    return [
        Violation(
            invariant="S6",
            what=f"{shown(run, seen, row)} {what}",
            calls=calls(run, seen, [row]),
            place=place(run, seen, row),
        )
        for row in map(int, above)
    ]


def _jumps(reads: Picked, run: RunInfo) -> list[Violation]:
    """Return fetches of one process from an offset above all that it had received."""
    fetches = reads.where((reads.reader == READER.FETCH) & (reads.outcome != OUTCOME.INFO))
    if len(fetches) < 2:
        return []
    fetches = fetches.sorted_by("process", "counter")
    refused = fetches.outcome == OUTCOME.FAIL
    # An empty response to a fetch at the end of the log does not show where the reader is.
    unsure = refused | ((fetches.offset < 0) & (fetches.count == 0))
    fresh = np.append(True, differs(fetches.process) | unsure[:-1])
    reached = _reached(fetches, refused, fresh)
    skipped = ~fresh[1:] & ~refused[1:] & (fetches.offset[1:] > np.maximum(reached[:-1], fetches.log_start[1:]))
    # Two concurrent calls are two readers.
    skipped &= fetches.completed_ns[:-1] <= fetches.invoked_ns[1:]
    return [_jumped(fetches, int(row) + 1, int(reached[row]), run) for row in true_at(skipped)[:MOST]]


def _reached(fetches: Picked, refused: Array, fresh: Array) -> Array:
    """Return the highest offset that each process had received. Each run of rows is above the previous run."""
    ends = np.where(fetches.count > 0, fetches.first + fetches.count, fetches.offset)
    ends = np.where(refused, 0, np.maximum(ends, 0))
    base = np.cumsum(fresh) * ends.max()
    return np.asarray(np.maximum.accumulate(ends + base) - base)


def _jumped(fetches: Picked, row: int, reached: int, run: RunInfo) -> Violation:
    asked = int(fetches.offset[row])
    what = f"a reader that was at {reached} went on at {asked}, and skipped what is between"
    shows = (call(run, fetches, row - 1), call(run, fetches, row))
    return Violation(invariant="S6", what=what, calls=shows, place=place(run, fetches, row))


INVARIANT = Invariant(
    name="S6", says="The high watermark never falls; a tail reader skips nothing.", scope=CheckScope.LOG, check=check
)
