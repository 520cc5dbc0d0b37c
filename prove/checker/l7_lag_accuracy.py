"""L7: reported lag and oldest age are accurate to one second, unless they are marked stale.

A figure is accurate if it lies between the smallest and the largest true value from one second before to one second
after it. True values are known only at samples, so the window extends to the next sample on either side, and a value
between two samples may leave their range by as much as the true value changes between them. A lag may leave that range
by another `RunInfo.targets["L7"]` messages, because all messages of a second may arrive at once. The ends of a series
are not judged.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.row_matching import Array, beginnings, differs
from prove.checker.timing import SECOND
from prove.history.tables import SampleKind, TableColumns, Tables

WITHIN_NS = SECOND
_ALLOWED = {int(SampleKind.LAG): 0, int(SampleKind.OLDEST_AGE_MS): 1000}


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["sample"]
    rows = rows.where(np.isin(rows.kind, list(_ALLOWED)) & (rows.truth >= 0))
    if len(rows) < 3:
        return []
    rows = rows.sorted_by("kind", "topic", "group", "at_ns")
    begins = beginnings(rows.kind, rows.topic, rows.group)
    ends = np.append(begins[1:], len(rows))
    found: list[Violation] = []
    for at in _doubtful(rows).tolist():
        series = int(np.searchsorted(begins, at, "right")) - 1
        found += _judged(rows, at, slice(begins[series], ends[series]), run)
        if len(found) >= MOST:
            break
    return found


def figure(tables: Tables, run: RunInfo) -> float | None:
    """Return the share of samples that were marked stale."""
    rows = tables["sample"]
    chosen = np.isin(rows.kind, list(_ALLOWED))
    return float(rows.stale[chosen].mean()) if chosen.any() else None


def _doubtful(rows: TableColumns) -> Array:
    """Return the samples that have neighbours on both sides and lie outside the range of these neighbours."""
    edge = differs(rows.kind, rows.topic, rows.group)
    inner = np.flatnonzero(~edge[1:] & ~edge[:-1]) + 1
    inner = inner[(rows.told[inner] >= 0) & ~rows.stale[inner]]
    near = np.stack([rows.truth[inner - 1], rows.truth[inner], rows.truth[inner + 1]])
    step = np.abs(np.diff(near, axis=0)).max(axis=0)
    told = rows.told[inner]
    outside: Array = (told < near.min(axis=0) - step) | (told > near.max(axis=0) + step)
    doubtful: Array = inner[outside]
    return doubtful


def _judged(rows: TableColumns, at: int, series: slice, run: RunInfo) -> list[Violation]:
    times = rows.at_ns[series]
    low = int(np.searchsorted(times, rows.at_ns[at] - WITHIN_NS, "right")) - 1
    high = int(np.searchsorted(times, rows.at_ns[at] + WITHIN_NS, "left"))
    if low < 0 or high >= len(times):
        return []
    truths = rows.truth[series][low : high + 1]
    slack = int(np.abs(np.diff(truths)).max()) + _ALLOWED[int(rows.kind[at])]
    if rows.kind[at] == SampleKind.LAG:
        slack += int(run.targets.get("L7", 0))
    least, most, told = int(truths.min()) - slack, int(truths.max()) + slack, int(rows.told[at])
    if least <= told <= most:
        return []
    kind = "a lag" if rows.kind[at] == SampleKind.LAG else "an oldest age in ms"
    what = f"{run.name(rows.group[at])} in {run.name(rows.topic[at])} was reported to have {kind} of {told} at "
    what += f"{rows.at_ns[at]} ns; within a second it was {max(0, least)} to {most}"
    return [Violation(invariant="L7", what=what)]


INVARIANT = Invariant(
    name="L7",
    says="reported lag and oldest age are accurate to 1 s, or marked stale",
    scope=CheckScope.GROUP,
    check=check,
    about=rows_of("sample", SampleKind.LAG, SampleKind.OLDEST_AGE_MS),
)
