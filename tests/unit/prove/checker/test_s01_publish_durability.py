"""S1: acked messages are in the final read, or retired."""

from __future__ import annotations

import pytest

from prove.checker import s01_publish_durability as s01
from prove.history.tables import ReaderKind
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import FAIL, INFO, OK, Rows, fetch, final, final_at, publish

BROKEN: dict[str, Rows] = {
    "acked and gone": publish(1, "x", 0) + publish(2, "y", 1) + final("x"),
    "acked, another's value there": publish(1, "x", 0) + final("y"),
    "acked at the log start, gone": publish(1, "x", 5) + final(log_start=5, end=6),
    "acked in a partition that is not there": publish(1, "x", 0, partition=3) + final("y"),
    "acked without a place": publish(1, "x", outcome=OK) + final(),
    "a repeat was acked, too, and it is gone": (
        publish(1, "x", identity="i") + publish(2, "x", 1, identity="i", duplicate=True) + final("a")
    ),
    "gone, and its value is elsewhere": (
        publish(1, "x", 0) + publish(2, "x", 2) + final_at([(1, "a"), (2, "x")], 0, 3)
    ),
    "a final read that did not come back": (
        publish(1, "x", 0) + fetch(9, 0, "", 1, reader=ReaderKind.FINAL, outcome=INFO, log_start=9)
    ),
}  # fmt: skip

# Each looks like a break at first sight.
NEARLY: dict[str, Rows] = {
    "retired by retention": publish(1, "x", 4) + publish(2, "y", 5) + final("y", log_start=5),
    "unknown and gone": publish(1, "x", 0) + publish(2, "y") + final("x"),
    "refused and gone": publish(1, "x", 0) + publish(2, "y", outcome=FAIL) + final("x"),
    "a call without an end, and gone": publish(1, "x", 0) + publish(2, "y", completed_ns=0) + final("x"),
    "two partitions": publish(1, "x", 0) + publish(2, "y", 0, partition=1) + final("x") + final("y", partition=1),
    "another offset is there twice": publish(1, "x", 0) + final("x", "y") + final("z"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s1_finds_a_break(name: str) -> None:
    assert_broken(s01, BROKEN[name])


@pytest.mark.parametrize("name", NEARLY)
def test_s1_leaves_alone_what_only_looks_like_one(name: str) -> None:
    assert_kept(s01, NEARLY[name])


def test_s1_of_an_empty_history() -> None:
    assert_nothing_said_of_nothing(s01)


def test_s1_names_the_message_and_the_call() -> None:
    found = assert_broken(s01, publish(1, "x", 0) + final("y"))
    assert [str(each) for each in found] == ["S1: x at t/0@0: acked, and y is there [a-1]"]
    assert found[0].place == ("t", 0, 0)
