"""L9: a group or partition that is slow or impossible to read delays no other group or partition."""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.history.tables import SampleKind, TableColumns, Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["sample"]
    wrong = (rows.kind == SampleKind.BESIDE) & (rows.stale | (rows.told > rows.truth))
    held_up = np.flatnonzero(wrong)[:MOST].tolist()
    return [
        Violation(
            invariant="L9",
            what=f"{run.name(rows.group[at])} in {run.name(rows.topic[at])} was delayed: {_figure(rows, at)}",
        )
        for at in held_up
    ]


def _figure(rows: TableColumns, at: int) -> str:
    if rows.stale[at]:
        return f"a call failed, at {rows.at_ns[at]} ns"
    if rows.truth[at]:
        return f"a call took {rows.told[at]} ms, {rows.truth[at]} at most, at {rows.at_ns[at]} ns"
    return f"{rows.told[at]} other partitions are not finished, at {rows.at_ns[at]} ns"


INVARIANT = Invariant(
    name="L9",
    says="a group or partition that is slow or impossible to read delays no other",
    scope=CheckScope.RUN,
    check=check,
    about=rows_of("sample", SampleKind.BESIDE),
)
