"""S2: only attempted messages are read, and no refused one."""

from __future__ import annotations

import pytest

from prove.checker import s02_attempted_messages as s02
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import FAIL, Rows, fetch, final, keyed, publish, row

BROKEN: dict[str, Rows] = {
    "never attempted": publish(1, "x", 0) + final("x", "ghost"),
    "refused and visible": publish(1, "x", outcome=FAIL) + final("x"),
    "under another key": publish(1, "x", 0, key="k") + final(keyed("x", "other")),
    "its key is gone": publish(1, "x", 0, key="k") + final("x"),
    "in another topic": publish(1, "x", 0, topic="u") + final("x"),
    "fetched, never attempted": publish(1, "x", 0) + fetch(2, 0, "0:ghost", 1) + final("x"),
    "fetched under another key": publish(1, "x", 0, key="k") + fetch(2, 0, "0:x:l", 1),
    "fetched before the attempt": fetch(1, 0, "0:x", 1) + publish(2, "x", 0) + final("x"),
    "fetched before the attempt that was not refused": (
        publish(1, "x", outcome=FAIL) + fetch(2, 0, "0:x", 1) + publish(3, "x", 0) + final("x")
    ),
    "a dead letter, never redriven": final("x") + row("dead", topic="t", copy_topic="t", copy_hash="x", redriven=0),
    "no attempts at all": final("x"),
}  # fmt: skip

# Each looks like a break at first sight.
NEARLY: dict[str, Rows] = {
    "unknown and visible": publish(1, "x") + final("x"),
    "a call without an end, and visible": publish(1, "x", completed_ns=0) + final("x"),
    "one attempt refused, another not": publish(1, "x", outcome=FAIL) + publish(2, "x", 0) + final("x"),
    "fetched while the call was under way": publish(1, "x", 0, completed_ns=99) + fetch(2, 0, "0:x", 1) + final("x"),
    "a reader that tells no keys": publish(1, "x", 0, key="k") + fetch(2, 0, "0:x", 1) + final(keyed("x", "k")),
    "one value under two keys": (
        publish(1, "x", 0, key="k") + publish(2, "x", 1, key="l") + final(keyed("x", "k"), keyed("x", "l"))
    ),
    "mended by a redrive": (
        publish(1, "x", 0) + final("x", "y") + row("dead", topic="t", copy_topic="t", copy_hash="y", redriven=1)
    ),
    "mended by a redrive and read at once": (
        fetch(1, 0, "0:y", 1) + publish(2, "x", 1) + row("dead", topic="t", copy_topic="t", copy_hash="y", redriven=1)
    ),
    "only sights without keys": publish(1, "x", 0, key="k") + fetch(2, 0, "0:x", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s2_finds_a_break(name: str) -> None:
    assert_broken(s02, BROKEN[name])


@pytest.mark.parametrize("name", NEARLY)
def test_s2_leaves_alone_what_only_looks_like_one(name: str) -> None:
    assert_kept(s02, NEARLY[name])


def test_s2_of_an_empty_history() -> None:
    assert_nothing_said_of_nothing(s02)


def test_s2_says_why_and_names_the_attempts() -> None:
    refused = publish(1, "x", key="k", outcome=FAIL) + publish(2, "x", key="l", outcome=FAIL) + publish(3, "y", 1)
    said = {each.what: each.calls for each in assert_broken(s02, refused + fetch(4, 0, "0:x:k 1:y", 2))}
    assert said == {"fetch read at t/0@0: x with key k was refused": ("a-1", "r-4")}
    other = publish(1, "x", 0, key="k") + publish(2, "y", 1) + publish(3, "x", 5, key="k", topic="u")
    said = {each.what: each.calls for each in assert_broken(s02, other + fetch(4, 0, "0:x:l 1:y", 2))}
    assert said == {"fetch read at t/0@0: x with key l was attempted under another key": ("a-1", "r-4")}
    early = fetch(1, 0, "0:x", 2) + publish(2, "y", 1) + publish(3, "x", 0) + publish(4, "x", 0, topic="u")
    said = {each.what: each.calls for each in assert_broken(s02, early)}
    assert said == {"fetch read at t/0@0: x with key none was read before its attempt": ("a-3", "r-1")}
