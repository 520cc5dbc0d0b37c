"""S6: the high watermark never falls, and no reader at the tail skips."""

from __future__ import annotations

import pytest

from prove.checker import s06_high_watermark as s06
from prove.history.tables import ReaderKind
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import FAIL, INFO, Rows, fetch, final, publish, row

BROKEN: dict[str, Rows] = {
    "a fetch saw less than an earlier one": fetch(1, 0, "", 5) + fetch(2, 0, "", 4) + final(*"abcde"),
    "a fetch saw less than was acked": publish(1, "x", 0) + fetch(2, 0, "", 0) + final("x"),
    "the end is below what was seen": fetch(1, 0, "", 5) + final("a"),
    "the end is below what was acked": publish(1, "x", 3) + final("a"),
    "the end is below what was delivered": (
        row("seen", topic="t", partition=0, offset=1, hash="b", reader=ReaderKind.DELIVERY, process="o", counter=4)
        + final("a")
    ),
    "there is no end": fetch(1, 0, "", 5),
    "a gap inside an answer": fetch(1, 0, "0:a 2:c", 3) + final("a", "b", "c"),
    "a gap at the start of an answer": fetch(1, 1, "2:c", 3) + final("a", "b", "c"),
    "an answer from before what was asked for": fetch(1, 1, "0:a 1:b", 3) + final("a", "b", "c"),
    "an offset twice in an answer": fetch(1, 0, "0:a 0:a", 3) + final("a", "b", "c"),
    "a reader went on too far": fetch(1, 0, "0:a", 4) + fetch(2, 2, "2:c", 4) + final(*"abcd"),
    "a reader went on too far after an empty answer": fetch(1, 0, "", 4) + fetch(2, 2, "2:c", 4) + final(*"abcd"),
    "a reader went on too far, an unknown between": (
        fetch(1, 0, "0:a", 4) + fetch(2, 1, "", 0, outcome=INFO) + fetch(3, 2, "2:c", 4) + final(*"abcd")
    ),
    "the fall of one partition of two": (
        fetch(1, 0, "", 5) + fetch(2, 0, "", 4) + final(*"abcde")
        + fetch(3, 0, "", 2, partition=1) + final("a", "b", partition=1)
    ),
    "a gap at the very start": fetch(1, 0, "1:b 2:c", 3) + final("a", "b", "c"),
    "a reader went on where an unknown had asked": (
        fetch(1, 0, "0:a", 4) + fetch(2, 2, "", 0, outcome=INFO) + fetch(3, 2, "2:c", 4) + final(*"abcd")
    ),
}  # fmt: skip

# Each looks like a break at first sight.
NEARLY: dict[str, Rows] = {
    "at the same time": fetch(1, 0, "", 5, completed_ns=99) + fetch(2, 0, "", 4) + final(*"abcde"),
    "acked at the same time": publish(1, "x", 0, completed_ns=25) + fetch(2, 0, "", 0) + final("x"),
    "refused": publish(1, "x", 7, outcome=FAIL) + fetch(2, 0, "", 0) + final(),
    "retired below the log start": fetch(1, 0, "3:d 4:e", 5, log_start=3) + final("d", "e", log_start=3),
    "retired while it was read": fetch(1, 0, "0:a 1:b 2:c", 5, log_start=2) + final("c", "d", "e", log_start=2),
    "a gap below the log start": fetch(1, 0, "0:a 3:d", 5, log_start=3) + final("d", "e", log_start=3),
    "nothing there yet": fetch(1, 5, "", 5) + fetch(2, 5, "", 5) + final(*"abcde"),
    "a reader that moved back": fetch(1, 3, "3:d", 5) + fetch(2, 0, "0:a 1:b", 5) + final(*"abcde"),
    "a reader that moved back and forth": (
        fetch(1, 3, "3:d", 5) + fetch(2, 0, "0:a 1:b", 5) + fetch(3, 4, "4:e", 5) + final(*"abcde")
    ),
    "a reader that the log start has passed": (
        fetch(1, 0, "0:a", 5) + fetch(2, 3, "3:d", 5, log_start=3) + final("d", "e", log_start=3)
    ),
    "a reader that was refused": (
        fetch(1, 0, "0:a", 5) + fetch(2, 1, "", 0, outcome=FAIL) + fetch(3, 3, "3:d", 5) + final(*"abcde")
    ),
    "delivered up to the end": (
        row("seen", topic="t", partition=0, offset=0, hash="a", reader=ReaderKind.DELIVERY, process="o", counter=4)
        + final("a")
    ),
    "read beyond the end by the final read itself": final("a", "b", end=1),
    "two readers": fetch(1, 0, "0:a", 5) + fetch(2, 3, "3:d", 5, process="q") + final(*"abcde"),
    "two calls at once": fetch(1, 0, "0:a", 5, completed_ns=99) + fetch(2, 3, "3:d", 5) + final(*"abcde"),
    "one reader of two partitions": (
        fetch(1, 0, "0:a", 5) + fetch(2, 3, "3:d", 5, partition=1) + final(*"abcde") + final(*"abcde", partition=1)
    ),
    "a reader that begins at the end": fetch(1, -1, "3:d", 5) + fetch(2, 4, "4:e", 5) + final(*"abcde"),
    "a replay by the same process": (
        fetch(1, 0, "0:a", 5) + fetch(2, 3, "3:d", 5, reader=ReaderKind.REPLAY) + final(*"abcde")
    ),
    "a reader that asked too far": fetch(1, 0, "0:a", 5) + fetch(2, 9, "", 0, outcome=FAIL) + final(*"abcde"),
    "a reader that waits at the end": (
        fetch(1, 0, "0:a", 5) + fetch(2, -1, "", 5) + fetch(3, 5, "", 5) + final(*"abcde")
    ),
    "a reader that restarts at the end": fetch(1, -1, "3:d", 5) + fetch(2, 4, "4:e", 5) + final(*"abcde"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s6_finds_a_break(name: str) -> None:
    assert_broken(s06, BROKEN[name])


@pytest.mark.parametrize("name", NEARLY)
def test_s6_leaves_alone_what_only_looks_like_one(name: str) -> None:
    assert_kept(s06, NEARLY[name])


def test_s6_of_an_empty_history() -> None:
    assert_nothing_said_of_nothing(s06)


def test_s6_names_who_saw_more() -> None:
    found = assert_broken(s06, publish(1, "x", 6) + fetch(2, 0, "", 9) + fetch(3, 0, "", 8) + final(*"abcdefghi"))
    assert [str(each) for each in found] == ["S6: the high watermark fell from 9 to 8 [r-2, r-3]"]


def test_s6_says_what_was_skipped() -> None:
    found = assert_broken(s06, BROKEN["a reader went on too far"])
    what = "a reader that was at 1 went on at 2, and skipped what is between"
    assert [(each.what, each.calls) for each in found] == [(what, ("r-1", "r-2"))]
    said = {each.what for each in assert_broken(s06, fetch(1, 0, "0:a 0:a 2:c", 3) + final("a", "b", "c"))}
    assert said == {"a fetch read returned offset 0 twice", "a fetch read went from offset 0 to 2"}
