"""S24: a canary of one project never appears in another."""

from __future__ import annotations

from prove.checker import s24_project_isolation as s24
from prove.history.tables import SampleKind
from tests.unit.prove.checker.cases import assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import run
from tests.unit.prove.checker.samples import sample


def test_s24_catches_a_canary() -> None:
    found = s24.check((sample(SampleKind.CANARY, 0) + sample(SampleKind.CANARY, 1, at=7)).tables(), run())
    assert [str(each) for each in found] == ["S24: s found a text of another project at 7000000 ns"]


def test_s24_lets_pass_where_none_was_found() -> None:
    assert s24.check((sample(SampleKind.CANARY, 0) + sample(SampleKind.OVERLOAD, 1)).tables(), run()) == []


def test_s24_without_a_history() -> None:
    assert_nothing_said_of_nothing(s24)
