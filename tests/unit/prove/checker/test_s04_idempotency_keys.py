"""S4: one identity has one place and one content."""

from __future__ import annotations

import pytest

from prove.checker import s04_idempotency_keys as s04
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import FAIL, Rows, fetch, final, keyed, publish, row

BROKEN: dict[str, Rows] = {
    "one key acked at two offsets": (
        publish(1, "x", 0, identity="i") + publish(2, "x", 1, identity="i", process="b") + final("x", "x")
    ),
    "one key acked in two partitions": (
        publish(1, "x", 0, identity="i") + publish(2, "x", 0, identity="i", partition=1)
        + final("x") + final("x", partition=1)
    ),
    "unknown and its repeat both there": (
        publish(1, "x", identity="i") + publish(2, "x", 1, identity="i") + final("x", "x")
    ),
    "two unknown ones of one key both there": (
        publish(1, "x", identity="i") + publish(2, "x", identity="i", process="b") + final("x", "x")
    ),
    "the final read has a key twice": publish(1, "x", 0) + final(keyed("x", None, "i"), keyed("y", None, "i")),
    "acked here and read there": publish(1, "x", 0, identity="i") + final("x", keyed("y", None, "i")),
    "same key, other bytes, accepted": (
        publish(1, "x", 0, identity="i") + publish(2, "y", 0, identity="i") + final("x")
    ),
    "same key, other bytes, in the log": publish(1, "x", 0, identity="i") + final(keyed("y", None, "i")),
    "one attempt, two copies": publish(1, "x", 0) + final("x", "x"),
    "one attempt, copies in two partitions": publish(1, "x", 0) + final("x") + final("x", partition=1),
    "one attempt refused, another twice there": publish(1, "x", outcome=FAIL) + publish(2, "x", 0) + final("x", "x"),
    "redriven once, twice more there": (
        publish(1, "x", 0) + final("x", "x", "x") + row("dead", topic="t", copy_topic="t", copy_hash="x", redriven=1)
    ),
}  # fmt: skip

# Each looks like a break at first sight.
NEARLY: dict[str, Rows] = {
    "a repeat answered with the first place": (
        publish(1, "x", 0, identity="i") + publish(2, "x", 0, identity="i", duplicate=True) + final("x")
    ),
    "same key, other bytes, refused": (
        publish(1, "x", 0, identity="i") + publish(2, "y", identity="i", outcome=FAIL) + final("x")
    ),
    "same key, other bytes, unknown": publish(1, "x", 0, identity="i") + publish(2, "y", identity="i") + final("x"),
    "same key in two topics": (
        publish(1, "x", 0, identity="i") + publish(2, "x", 0, identity="i", topic="u")
        + final("x") + final("x", topic="u")
    ),
    "no key, tried twice, twice there": publish(1, "x") + publish(2, "x", 1) + final("x", "x"),
    "one value under two keys": publish(1, "x", 0, identity="i") + publish(2, "x", 1, identity="j") + final("x", "x"),
    "redriven": (
        publish(1, "x", 0) + final("x", "x") + row("dead", topic="t", copy_topic="t", copy_hash="x", redriven=1)
    ),
    "an offset is read twice": publish(1, "x", 0) + final("x") + final("x"),
    "read by many": publish(1, "x", 0, identity="i") + fetch(2, 0, "0:x", 1) + final(keyed("x", None, "i")),
    "two keys, two values": publish(1, "x", 0, identity="i") + publish(2, "y", 1, identity="j") + final("x", "y"),
    "no keys at all": publish(1, "x", 0) + publish(2, "y", 1) + final("x", "y"),
    "occurs twice without an attempt": final("x", "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s4_finds_a_break(name: str) -> None:
    assert_broken(s04, BROKEN[name])


@pytest.mark.parametrize("name", NEARLY)
def test_s4_leaves_alone_what_only_looks_like_one(name: str) -> None:
    assert_kept(s04, NEARLY[name])


def test_s4_of_an_empty_history() -> None:
    assert_nothing_said_of_nothing(s04)


def test_s4_names_both_places_and_contents() -> None:
    moved = assert_broken(s04, publish(1, "x", 0, identity="i") + publish(2, "x", 1, identity="i") + final("x", "y"))
    assert len(moved) == 1 and set(moved[0].calls) == {"a-1", "a-2"}
    assert all(part in moved[0].what for part in ("i is at", "t/0@0", "t/0@1"))
    changed = assert_broken(s04, publish(1, "x", 0, identity="i") + publish(2, "y", 0, identity="i") + final("x"))
    assert len(changed) == 1 and set(changed[0].calls) == {"a-1", "a-2"}
    assert all(part in changed[0].what for part in ("i at t/0@0", "x", "y"))


def test_s4_names_the_attempts_of_a_copied_value() -> None:
    others = publish(2, "y", 2) + publish(3, "x", 0, topic="u")
    found = assert_broken(s04, publish(1, "x", 0) + others + final("x", "x", "y"))
    assert [(each.what, each.calls) for each in found] == [
        ("x occurs 2 times, at t/0@0, t/0@1; its attempts allow 1", ("a-1",))
    ]
