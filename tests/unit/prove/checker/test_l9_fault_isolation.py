"""L9: a group or partition that is slow or impossible to read delays no other."""

from __future__ import annotations

import pytest

from prove.checker import l9_fault_isolation as l9
from prove.history.tables import SampleKind
from tests.unit.prove.checker.cases import assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import run
from tests.unit.prove.checker.samples import sample


@pytest.mark.parametrize(
    ("told", "truth", "failed", "what"),
    [
        (1001, 1000, False, "a call took 1001 ms, 1000 at most, at 7000000 ns"),
        (5, 1000, True, "a call failed, at 7000000 ns"),
        (2, 0, False, "2 other partitions are not finished, at 7000000 ns"),
    ],
)
def test_l9_catches_what_is_held_up(told: int, truth: int, failed: bool, what: str) -> None:
    found = l9.check(sample(SampleKind.BESIDE, told, truth, at=7, stale=failed).tables(), run())
    assert [str(each) for each in found] == [f"L9: g in t was delayed: {what}"]


def test_l9_lets_pass_what_goes_on() -> None:
    rows = sample(SampleKind.BESIDE, 1000, 1000) + sample(SampleKind.BESIDE, 0, 0) + sample(SampleKind.LAG, 9, 1)
    assert l9.check(rows.tables(), run()) == []


def test_l9_without_a_history() -> None:
    assert_nothing_said_of_nothing(l9)
