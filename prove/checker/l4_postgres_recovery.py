"""L4: the servers serve again within 10 s after PostgreSQL returns."""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.history.tables import SampleKind, Tables

LIMIT_SECONDS = 10.0


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["sample"]
    limit = run.targets.get("L4", LIMIT_SECONDS)
    # A negative value means that no publish succeeded.
    late = (rows.kind == SampleKind.SERVING) & ((rows.told > 1000 * limit) | (rows.told < 0))
    return [
        Violation(
            invariant="L4", what=f"PostgreSQL was back at {rows.at_ns[at]} ns, and {_wait_text(int(rows.told[at]))}"
        )
        for at in np.flatnonzero(late)[:MOST].tolist()
    ]


def figure(tables: Tables, run: RunInfo) -> float | None:
    """Return the longest wait in seconds."""
    rows = tables["sample"]
    waits = rows.told[rows.kind == SampleKind.SERVING]
    return float(waits.max()) / 1000 if len(waits) else None


def _wait_text(told: int) -> str:
    return f"the first publish succeeded {told} ms later" if told >= 0 else "no publish was ok afterwards"


INVARIANT = Invariant(
    name="L4",
    says="the servers serve again within 10 s after PostgreSQL returns",
    scope=CheckScope.RUN,
    check=check,
    about=rows_of("sample", SampleKind.SERVING),
)
