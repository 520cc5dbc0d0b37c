"""L4: the servers serve again within 10 s after PostgreSQL returns."""

from __future__ import annotations

import pytest

from prove.checker import l4_postgres_recovery as l4
from prove.history.tables import SampleKind
from tests.unit.prove.checker.cases import assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import run
from tests.unit.prove.checker.samples import sample


@pytest.mark.parametrize("told", [10_001, -1])
def test_l4_catches_a_long_wait(told: int) -> None:
    (found,) = l4.check((sample(SampleKind.SERVING, 20) + sample(SampleKind.SERVING, told)).tables(), run())
    assert found.invariant == "L4"


def test_l4_lets_pass_ten_seconds_and_other_samples() -> None:
    found = (sample(SampleKind.SERVING, 10_000) + sample(SampleKind.MEMORY, 99_999, 100_000)).tables()
    assert l4.check(found, run()) == []
    assert l4.figure(found, run()) == 10.0


def test_l4_has_more_time_where_the_run_says_so() -> None:
    assert l4.check(sample(SampleKind.SERVING, 15_000).tables(), run(targets={"L4": 20.0})) == []


def test_l4_without_a_history() -> None:
    assert_nothing_said_of_nothing(l4)
    assert l4.figure(sample(SampleKind.LAG, 1).tables(), run()) is None
