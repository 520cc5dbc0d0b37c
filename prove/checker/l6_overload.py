"""L6: overload is answered with 429 or 503 and Retry-After, and a server's memory stays within its limit."""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.history.tables import SampleKind, Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["sample"]
    bare = np.flatnonzero((rows.kind == SampleKind.OVERLOAD) & (rows.told != 1))[:MOST].tolist()
    large = np.flatnonzero((rows.kind == SampleKind.MEMORY) & (rows.told > rows.truth))[:MOST].tolist()
    found = [_violation(f"{run.name(rows.process[at])} was refused without Retry-After") for at in bare]
    found += [
        _violation(f"{run.name(rows.process[at])} has {rows.told[at]} bytes; its limit is {rows.truth[at]}")
        for at in large
    ]
    return found[:MOST]


def figure(tables: Tables, run: RunInfo) -> float | None:
    """Return the largest share of its memory limit that a server used."""
    rows = tables["sample"]
    rows = rows.where((rows.kind == SampleKind.MEMORY) & (rows.truth > 0))
    return float((rows.told / rows.truth).max()) if len(rows) else None


def _violation(what: str) -> Violation:
    return Violation(invariant="L6", what=what)


INVARIANT = Invariant(
    name="L6",
    says="overload is answered with 429 or 503 and Retry-After; memory stays within its limit",
    scope=CheckScope.RUN,
    check=check,
    about=rows_of("sample", SampleKind.OVERLOAD, SampleKind.MEMORY),
)
