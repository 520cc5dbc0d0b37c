"""L6: overload is answered with Retry-After, and memory stays bounded."""

from __future__ import annotations

from prove.checker import l6_overload as l6
from prove.history.tables import SampleKind
from tests.unit.prove.checker.cases import assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import run
from tests.unit.prove.checker.samples import sample


def test_l6_catches_an_answer_without_retry_after() -> None:
    found = l6.check((sample(SampleKind.OVERLOAD, 1) + sample(SampleKind.OVERLOAD, 0)).tables(), run())
    assert [str(each) for each in found] == ["L6: s was refused without Retry-After"]


def test_l6_catches_memory_beyond_its_limit() -> None:
    found = l6.check((sample(SampleKind.MEMORY, 100, 100) + sample(SampleKind.MEMORY, 101, 100)).tables(), run())
    assert [str(each) for each in found] == ["L6: s has 101 bytes; its limit is 100"]


def test_l6_lets_pass_what_is_within() -> None:
    found = (
        sample(SampleKind.OVERLOAD, 1) + sample(SampleKind.MEMORY, 50, 100) + sample(SampleKind.LAG, 9, 3)
    ).tables()
    assert l6.check(found, run()) == []
    assert l6.figure(found, run()) == 0.5


def test_l6_without_a_history() -> None:
    assert_nothing_said_of_nothing(l6)
    assert l6.figure(sample(SampleKind.LAG, 1).tables(), run()) is None
