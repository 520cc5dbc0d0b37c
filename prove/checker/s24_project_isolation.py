"""S24: a text that only one project has never appears in another: not in payloads, errors, metrics or the console."""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.history.tables import SampleKind, Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["sample"]
    found = np.flatnonzero((rows.kind == SampleKind.CANARY) & (rows.told == 1))[:MOST].tolist()
    return [
        Violation(
            invariant="S24",
            what=f"{run.name(rows.process[at])} found a text of another project at {rows.at_ns[at]} ns",
        )
        for at in found
    ]


INVARIANT = Invariant(
    name="S24",
    says="a canary of one project never appears in another",
    scope=CheckScope.RUN,
    check=check,
    about=rows_of("sample", SampleKind.CANARY),
)
