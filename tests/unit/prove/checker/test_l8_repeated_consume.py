"""L8: a consume repeated with its request id returns the leases of its first attempt."""

from __future__ import annotations

from prove.checker import l8_repeated_consume as l8
from prove.history.tables import SampleKind
from tests.unit.prove.checker.cases import assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import run
from tests.unit.prove.checker.samples import sample


def test_l8_catches_a_repeat_without_its_lease() -> None:
    found = l8.check((sample(SampleKind.REPEAT, 3, 3) + sample(SampleKind.REPEAT, 0, 2, at=7)).tables(), run())
    assert [str(each) for each in found] == [
        "L8: s repeated a consume of g and got 0 of the 2 messages leased to it, at 7000000 ns"
    ]


def test_l8_lets_pass_what_came_back_or_was_over() -> None:
    rows = (sample(SampleKind.REPEAT, 3, 3) + sample(SampleKind.REPEAT, 0, 0) + sample(SampleKind.LAG, 0, 1)).tables()
    assert l8.check(rows, run()) == []


def test_l8_without_a_history() -> None:
    assert_nothing_said_of_nothing(l8)
