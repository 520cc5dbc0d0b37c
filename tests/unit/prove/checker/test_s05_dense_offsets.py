"""S5: dense offsets, and the order of a producer and key."""

from __future__ import annotations

import pytest

from prove.checker import s05_dense_offsets as s05
from prove.history.tables import ReaderKind
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import Rows, fetch, final, final_at, keyed, publish

BROKEN: dict[str, Rows] = {
    "a hole": final_at([(0, "x"), (2, "y")], 0, 3),
    "the first is missing": final_at([(1, "x")], 0, 2),
    "the last is missing": final("x", end=2),
    "all are missing": final(end=3),
    "beyond the high watermark": final("x", "y", end=1),
    "before the log start": final_at([(3, "x"), (4, "y")], 4, 5),
    "an offset twice": final_at([(0, "x"), (1, "y"), (1, "y")], 0, 2),
    "read out of order": final_at([(1, "x"), (0, "y")], 0, 2),
    "a fetch with a hole": fetch(1, 0, "0:a 2:c", 3) + final("a", "b", "c"),
    "one after the other, swapped": publish(1, "x", 1, key="k") + publish(2, "y", 0, key="k") + final("y", "x"),
    "swapped over a distance": (
        publish(1, "x", 2, key="k") + publish(2, "y", 0, key="k")
        + publish(3, "z", 1, key="k", invoked_ns=1, completed_ns=99) + final("y", "z", "x")
    ),
    "sequence swapped": (
        publish(1, "x", 1, key="k", producer="p", sequence=1, completed_ns=99)
        + publish(2, "y", 0, key="k", producer="p", sequence=2) + final("y", "x")
    ),
    "batch swapped": (
        publish(1, "x", 1, key="k", batch=1, completed_ns=99) + publish(2, "y", 0, key="k", batch=1) + final("y", "x")
    ),
    "batch swapped around another": (
        publish(1, "x", 2, key="k", batch=1, completed_ns=99) + publish(2, "y", 0, key="k", batch=1, completed_ns=99)
        + publish(3, "z", 1, key="k", completed_ns=99, invoked_ns=1) + final("y", "z", "x")
    ),
    "a late unknown overtakes nothing, but an early one was acked behind it": (
        publish(1, "x", 1, key="k") + publish(2, "y", key="k") + final(keyed("y", "k"), keyed("x", "k"))
    ),
    "swapped under identities": (
        publish(1, "x", 1, key="k", identity="i") + publish(2, "y", 0, key="k", identity="j") + final("y", "x")
    ),
}  # fmt: skip

# Each looks like a break at first sight.
NEARLY: dict[str, Rows] = {
    "starts at the log start": final("x", "y", log_start=7),
    "an empty partition": final(log_start=7),
    "read by several calls": (
        final_at([(0, "x"), (1, "y")], 0, 3) + fetch(9, 2, "2:z", 3, reader=ReaderKind.FINAL, process="f")
    ),
    "the log start rose between two calls of the final read": (
        final_at([(0, "x")], 0, 4) + fetch(9, 2, "2:y 3:z", 4, reader=ReaderKind.FINAL, process="f", log_start=2)
    ),
    "at the same time": (
        publish(1, "x", 1, key="k", completed_ns=25) + publish(2, "y", 0, key="k") + final("y", "x")
    ),
    "other keys": (
        publish(1, "x", 1, key="k") + publish(2, "y", 0, key="l") + final(keyed("y", "l"), keyed("x", "k"))
    ),
    "no key": publish(1, "x", 1) + publish(2, "y", 0) + final("y", "x"),
    "other partitions": (
        publish(1, "x", 1, key="k") + publish(2, "y", 0, key="k", partition=1)
        + final("a", "x") + final("y", partition=1)
    ),
    "other producers": (
        publish(1, "x", 1, key="k") + publish(2, "y", 0, key="k", process="b")
        + final(keyed("y", "k"), keyed("x", "k"))
    ),
    "a repeat of an earlier message": (
        publish(1, "x", key="k", identity="i") + publish(2, "y", 1, key="k")
        + publish(3, "x", 0, key="k", identity="i") + final(keyed("x", "k"), keyed("y", "k"))
    ),
    "a repeat of what another process sent": (
        publish(1, "x", key="k", identity="i", process="b") + publish(2, "y", 1, key="k")
        + publish(3, "x", 0, key="k", identity="i", duplicate=True) + final(keyed("x", "k"), keyed("y", "k"))
    ),
    "an unknown repeat of what another process sent": (
        publish(1, "x", key="k", identity="i", process="b") + publish(2, "y", 1, key="k")
        + publish(3, "x", key="k", identity="i") + final(keyed("x", "k"), keyed("y", "k"))
    ),
    "an unknown second try without an identity": (
        publish(1, "x", key="k") + publish(2, "y", 1, key="k") + publish(3, "x", key="k")
        + final(keyed("x", "k"), keyed("y", "k"))
    ),
    "an unknown that came late": (
        publish(1, "x", key="k") + publish(2, "y", 0, key="k") + final(keyed("y", "k"), keyed("x", "k"))
    ),
    "other producers in one process": (
        publish(1, "x", 1, key="k", producer="p") + publish(2, "y", 0, key="k", producer="q") + final("y", "x")
    ),
    "unknown and gone": publish(1, "x", 0, key="k") + publish(2, "y", key="k") + final(keyed("x", "k")),
    "sequence and batch in order": (
        publish(1, "x", 0, key="k", producer="p", sequence=1, batch=1)
        + publish(2, "y", 1, key="k", producer="p", sequence=1, batch=1)
        + publish(3, "z", 2, key="k", producer="p", sequence=2, batch=3) + final("x", "y", "z")
    ),
    "sequence swapped under other keys": (
        publish(1, "x", 1, key="l", producer="p", sequence=1, completed_ns=99)
        + publish(2, "y", 0, key="k", producer="p", sequence=2) + final("y", "x")
    ),
    "the sequences of two calls that are not numbered": (
        publish(1, "x", 1, key="k", completed_ns=99, sequence=1) + publish(2, "y", 0, key="k", sequence=2)
        + final("y", "x")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s5_finds_a_break(name: str) -> None:
    assert_broken(s05, BROKEN[name])


@pytest.mark.parametrize("name", NEARLY)
def test_s5_leaves_alone_what_only_looks_like_one(name: str) -> None:
    assert_kept(s05, NEARLY[name])


def test_s5_of_an_empty_history() -> None:
    assert_nothing_said_of_nothing(s05)


def test_s5_says_what_is_missing() -> None:
    found = assert_broken(s05, final_at([(3, "x"), (5, "y"), (5, "y"), (9, "z")], 2, 8))
    assert found[0].what == "t/0 from 2 to 8: missing [2, 4, 6, 7], outside [9], twice [5]"


def test_s5_says_which_two_were_swapped() -> None:
    found = assert_broken(s05, BROKEN["one after the other, swapped"])
    assert [each.what for each in found] == ["of key k, a-1 was sent before a-2, but is at t/0@1, after t/0@0"]


def test_s5_keeps_streams_apart() -> None:
    """The earliest ack of one key does not affect another, however many there are."""
    history = Rows()
    for number, key in enumerate("abcdef"):
        history += publish(number + 1, f"x{key}", 11 - number, key=key) + publish(
            number + 10, f"y{key}", 20 + number, key=key
        )
    assert_kept(s05, history)
    assert_broken(s05, history + publish(30, "late", 0, key="c"))


@pytest.mark.parametrize("name", ["sequence swapped", "batch swapped"])
def test_s5_names_the_one_that_was_sent_first_first(name: str) -> None:
    assert [each.calls for each in assert_broken(s05, BROKEN[name])] == [("a-1", "a-2")]
