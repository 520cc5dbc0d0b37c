"""S21: the files of live segments exist."""

from __future__ import annotations

import pytest

from prove.checker import s21_segment_files as s21
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import FAIL, Rows, final, row
from tests.unit.prove.checker.test_s20_segment_coverage import segment

GONE = segment(0, 4) + segment(4, 8, exists=0)
CUT = row("cut", topic="t", partition=0, first=0, end=8)
BROKEN: dict[str, Rows] = {
    "deleted on a commit error": GONE,
    "the log start is within it": GONE + final("x", log_start=7),
    "a refused read says nothing": GONE + row("read", topic="t", partition=0, log_start=8, outcome=FAIL),
}
KEPT: dict[str, Rows] = {
    "all there": segment(0, 4) + segment(4, 8),
    "nobody's": segment(0, 4, live=0, exists=0),
    "below the log start": GONE + final(log_start=8),
    "cut": GONE + CUT,
}


@pytest.mark.parametrize("case", BROKEN)
def test_s21_catches(case: str) -> None:
    found = assert_broken(s21, BROKEN[case])
    assert found[0].place == ("t", 0, 4)


@pytest.mark.parametrize("case", KEPT)
def test_s21_lets_pass(case: str) -> None:
    assert_kept(s21, KEPT[case])


def test_s21_without_a_history() -> None:
    assert_nothing_said_of_nothing(s21)
