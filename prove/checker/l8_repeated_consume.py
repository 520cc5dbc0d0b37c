"""L8: a consume repeated with its request id returns the leases of its first attempt, while they last."""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.history.tables import SampleKind, Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["sample"]
    short = np.flatnonzero((rows.kind == SampleKind.REPEAT) & (rows.told < rows.truth))[:MOST].tolist()
    return [
        Violation(
            invariant="L8",
            what=f"{run.name(rows.process[at])} repeated a consume of {run.name(rows.group[at])} and got "
            f"{rows.told[at]} of the {rows.truth[at]} messages leased to it, at {rows.at_ns[at]} ns",
        )
        for at in short
    ]


INVARIANT = Invariant(
    name="L8",
    says="a consume repeated with its request id returns the leases of its first attempt, while they last",
    scope=CheckScope.RUN,
    check=check,
    about=rows_of("sample", SampleKind.REPEAT),
)
