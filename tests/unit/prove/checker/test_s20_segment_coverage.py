"""S20: each offset is in one live segment or hot, and a segment holds what was sealed."""

from __future__ import annotations

from typing import Any

import pytest

from prove.checker import s20_segment_coverage as s20
from prove.history.tables import ReaderKind
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import Rows, final, final_at, row

LOG = final("a", "b", "c", "d", "e")


def segment(first: int, end: int, **more: Any) -> Rows:
    found = {"topic": "t", "partition": 0, "first": first, "end": end, "rows": end - first, "read_rows": end - first}
    return row("segment", **{**found, "sealed_hash": first + 7, "read_hash": first + 7, "live": 1, "exists": 1, **more})


def cold(values: str, first: int = 0) -> Rows:
    made = (
        row("seen", topic="t", partition=0, reader=ReaderKind.COLD, offset=offset, hash=value)
        for offset, value in enumerate(values.split(), first)
    )
    return sum(made, Rows())


TWO = segment(0, 2) + segment(2, 4) + cold("a b c d")
BROKEN: dict[str, Rows] = {
    "two share an offset": LOG + segment(0, 2) + segment(1, 4) + cold("a b c d"),
    "one within another": LOG + segment(0, 4) + segment(1, 2) + cold("a b c d"),
    "fewer rows than offsets": LOG + segment(0, 4, rows=3) + cold("a b c d"),
    "fewer rows in the file": segment(0, 4, read_rows=3),
    "another hash": LOG + segment(0, 4, read_hash=1) + cold("a b c d"),
    "an offset twice in the files": LOG + TWO + cold("b", 1),
    "other bytes": LOG + segment(0, 4) + cold("a b x d"),
    "in a file and not in the final read": final_at([(0, "a"), (2, "c")], 0, 3) + segment(0, 3) + cold("a b c"),
    "not in its file": LOG + segment(0, 4) + cold("a b") + cold("d", 3),
    "beyond the final read": final("a", "b", "c") + segment(0, 4) + cold("a b c d"),
    "hot rows went before the commit": final_at([(0, "a"), (1, "b"), (4, "e")], 0, 5) + segment(0, 2) + cold("a b"),
    "hot rows went, and no segment came": final_at([(4, "e")], 0, 5),
    "nothing is left at the end": final_at([(0, "a")], 0, 5),
}
KEPT: dict[str, Rows] = {
    "two and a hot tail": LOG + TWO,
    "all hot": LOG,
    "a hot stretch between two": LOG + segment(0, 1) + segment(3, 4) + cold("a") + cold("d", 3),
    "one that is not live": LOG + TWO + segment(1, 5, live=0, rows=1, read_hash=9),
    "one whose file is missing is another's": LOG + segment(0, 4, exists=0, read_hash=0, read_rows=0),
    "below the log start": final("c", "d", "e", log_start=2) + segment(0, 2, read_hash=1, exists=1) + segment(2, 4)
    + cold("c d", 2),
    "the log start within one": final("b", "c", log_start=1) + segment(0, 2) + cold("a b"),
    "all retired": final_at([], 5, 5) + segment(0, 5) + cold("a b c d e"),
    "no final read": TWO,
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_s20_catches(case: str) -> None:
    assert_broken(s20, BROKEN[case])


@pytest.mark.parametrize("case", KEPT)
def test_s20_lets_pass(case: str) -> None:
    assert_kept(s20, KEPT[case])


def test_s20_says_what_is_nowhere() -> None:
    found = assert_broken(s20, BROKEN["hot rows went before the commit"])
    assert str(found[0]) == "S20: 2 messages of t/0 are neither hot nor cold, after offsets such as [1]"
    assert found[0].place == ("t", 0, 2)


def test_s20_sees_a_segment_that_reaches_over_several() -> None:
    history = segment(0, 4) + segment(1, 2) + segment(3, 4)
    assert len(assert_broken(s20, history)) == 2


def test_s20_without_a_history() -> None:
    assert_nothing_said_of_nothing(s20)
