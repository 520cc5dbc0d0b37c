"""Shared assertions of the check tests: histories that violate an invariant, and histories that nearly do."""

from __future__ import annotations

import time
from types import ModuleType

from prove.checker.invariant import Invariant, Violation
from prove.history.tables import Tables
from tests.unit.prove.checker.rows import Rows, judged, run, tables


def invariants(module: ModuleType) -> tuple[Invariant, ...]:
    """Return the invariant of a module, or one per scope."""
    return module.INVARIANTS if hasattr(module, "INVARIANTS") else (module.INVARIANT,)


def assert_broken(module: ModuleType, history: Rows) -> list[Violation]:
    """Assert that a violation is found, and that it names calls of the history."""
    found = judged(invariants(module), tables(history))
    assert found
    assert {each.invariant for each in found} == {one.name for one in invariants(module)}
    rows = [row for table in history.by_table.values() for row in table if "process" in row]
    known = {f"{run().name(int(str(row['process'])))}-{row['counter']}" for row in rows}
    assert {call for each in found for call in each.calls} <= known
    return found


def assert_kept(module: ModuleType, history: Rows) -> None:
    assert judged(invariants(module), tables(history)) == []


def assert_nothing_said_of_nothing(module: ModuleType) -> None:
    """Assert that an empty history violates nothing and is fast: the simulation judges small ones by the ten
    thousand."""
    empty = Tables(by_name={})
    for one in invariants(module):
        assert one.check(empty, run()) == []
        began = time.process_time()
        for _ in range(20):
            one.check(empty, run())
        # The limit is 1 ms; a machine under load gets ten times that.
        assert (time.process_time() - began) / 20 < 0.01
