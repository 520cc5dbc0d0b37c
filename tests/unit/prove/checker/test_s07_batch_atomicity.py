"""S7: a batch is all or nothing per partition."""

from __future__ import annotations

import pytest

from prove.checker import s07_batch_atomicity as s07
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import FAIL, Rows, fetch, final, final_at, keyed, publish

BROKEN: dict[str, Rows] = {
    "half a batch, acked": publish(1, "x", 0, batch=1) + publish(2, "y", 1, batch=1) + final("x", end=2),
    "half a batch, unknown, one key": (
        publish(1, "x", batch=1, key="k") + publish(2, "y", batch=1, key="k") + final(keyed("x", "k"))
    ),
    "half a batch, unknown, partition asked for": (
        publish(1, "x", batch=1, asked_partition=0) + publish(2, "y", batch=1, asked_partition=0) + final("y")
    ),
    "half a batch above the log start": (
        publish(1, "x", batch=1, asked_partition=0) + publish(2, "y", batch=1, asked_partition=0)
        + final("a", "y", log_start=7)
    ),
    "half a batch acked, half of it unknown": (
        publish(1, "x", 0, batch=1, identity="i") + publish(2, "y", batch=1, identity="j", asked_partition=0)
        + final("x")
    ),
    "half a batch, with identities": (
        publish(1, "x", batch=1, identity="i", key="k") + publish(2, "y", batch=1, identity="j", key="k")
        + final(keyed("x", "k"))
    ),
    "the batch 0": publish(0, "x", batch=0, key="k") + publish(1, "y", batch=0, key="k") + final(keyed("x", "k")),
    "half a batch, acked, another's value there": (
        publish(1, "x", 0, batch=1) + publish(2, "y", 1, batch=1) + final("x", "z")
    ),
    "half a batch, acked, and elsewhere": (
        publish(1, "x", 0, batch=1) + publish(2, "y", 1, batch=1) + final_at([(0, "x"), (2, "y")], 0, 3)
    ),
    "the log start of a fetch is not the end's": (
        publish(1, "x", batch=1, key="k") + publish(2, "y", batch=1, key="k") + final(keyed("x", "k"))
        + fetch(9, 9, "", 9, log_start=9)
    ),
}  # fmt: skip

# Each looks like a break at first sight.
NEARLY: dict[str, Rows] = {
    "nothing of a batch": publish(1, "x", batch=1, key="k") + publish(2, "y", batch=1, key="k") + final(),
    "all of a batch": publish(1, "x", batch=1, key="k") + publish(2, "y", batch=1, key="k") + final("x", "y"),
    "a whole batch in two partitions, one of them unknown and gone": (
        publish(1, "x", 0, batch=1) + publish(2, "y", batch=1, asked_partition=1) + final("x")
    ),
    "unknown partition": publish(1, "x", batch=1) + publish(2, "y", batch=1) + final("x"),
    "two keys": publish(1, "x", batch=1, key="k") + publish(2, "y", batch=1, key="l") + final(keyed("x", "k")),
    "one message refused": (
        publish(1, "x", 0, batch=1) + publish(2, "y", batch=1, outcome=FAIL, asked_partition=0) + final("x")
    ),
    "one message repeats another batch's": (
        publish(1, "x", 0, identity="i", batch=1) + publish(2, "x", batch=2, identity="i")
        + publish(3, "y", batch=2, asked_partition=0) + final("x")
    ),
    "one message repeats another process's": (
        publish(1, "x", identity="i", process="b", asked_partition=0)
        + publish(2, "x", batch=2, identity="i", asked_partition=0)
        + publish(3, "y", batch=2, asked_partition=0) + final("x")
    ),
    "a value that others sent, too": (
        publish(1, "", 0, process="b", identity="i") + publish(2, "", batch=2, identity="j", asked_partition=0)
        + publish(3, "y", batch=2, asked_partition=0) + final("")
    ),
    "two calls": publish(1, "x", 0, batch=1) + publish(2, "y", batch=2, asked_partition=0) + final("x"),
    "two processes": (
        publish(1, "x", 0, batch=1) + publish(2, "y", batch=1, asked_partition=0, process="b") + final("x")
    ),
    "the log start runs through a batch": (
        publish(1, "x", batch=1, asked_partition=0) + publish(2, "y", batch=1, asked_partition=0)
        + final("y", log_start=7)
    ),
    "the log start runs through an acked batch": (
        publish(1, "x", 6, batch=1) + publish(2, "y", 7, batch=1) + final("y", log_start=7)
    ),
    "a whole batch, acked and gone": publish(1, "x", 0, batch=1) + publish(2, "y", 1, batch=1) + final(end=2),
    "a message that was there before": (
        publish(1, "x", 0, batch=1, duplicate=True) + publish(2, "y", batch=1, asked_partition=0) + final("x")
    ),
    "the first message of all is retired": (
        publish(1, "x", batch=1, asked_partition=0) + publish(2, "y", batch=1, asked_partition=0)
        + final("y", log_start=1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s7_finds_a_break(name: str) -> None:
    assert_broken(s07, BROKEN[name])


@pytest.mark.parametrize("name", NEARLY)
def test_s7_leaves_alone_what_only_looks_like_one(name: str) -> None:
    assert_kept(s07, NEARLY[name])


def test_s7_of_an_empty_history() -> None:
    assert_nothing_said_of_nothing(s07)


def test_s7_names_the_one_that_is_missing() -> None:
    found = assert_broken(s07, BROKEN["half a batch, unknown, one key"])
    assert [each.what for each in found] == ["1 of 2 messages of batch a-1 are in their partition; missing a-2"]
    found = assert_broken(s07, BROKEN["half a batch, acked"])
    assert [each.what for each in found] == ["1 of 2 messages of batch a-1 are in their partition; missing a-2"]
