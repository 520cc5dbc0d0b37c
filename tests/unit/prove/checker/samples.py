"""Samples as rows."""

from __future__ import annotations

from typing import Any

from prove.history.tables import SampleKind
from tests.unit.prove.checker.rows import Rows, row

MS = 1_000_000


def sample(kind: SampleKind, told: int, truth: int = 0, at: int = 0, **more: Any) -> Rows:
    """Return a sample at that millisecond."""
    found = {"topic": "t", "group": "g", "process": "s", "told": told, "truth": truth, "at_ns": at * MS}
    return row("sample", kind=kind, **{**found, **more})
