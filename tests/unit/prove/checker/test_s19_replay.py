"""S19: a replay returns identical bytes and changes no other group."""

from __future__ import annotations

from typing import Any

import pytest

from prove.checker import s19_replay as s19
from prove.history.tables import OwnerVerb, ReaderKind
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import FAIL, INFO, Rows, fetch, final, keyed, row


def progress(counter: int, epoch: int, **more: Any) -> Rows:
    when = {"invoked_ns": counter * 10, "completed_ns": counter * 10 + 5}
    return row(
        "progress",
        **{
            "topic": "t",
            "partition": 0,
            "group": "g",
            "epoch": epoch,
            "process": "s",
            "counter": counter,
            **when,
            **more,
        },
    )


def seek(counter: int, **more: Any) -> Rows:
    when = {"invoked_ns": counter * 10, "completed_ns": counter * 10 + 5}
    return row(
        "call",
        **{"topic": "t", "group": "g", "verb": OwnerVerb.SEEK, "process": "s", "counter": counter, **when, **more},
    )


BROKEN: dict[str, Rows] = {
    "other bytes": final("x", "y") + fetch(1, 0, "0:x 1:z", 2, reader=ReaderKind.REPLAY, group="g"),
    "another key": final(keyed("x", "k")) + fetch(1, 0, "0:x:l", 1, reader=ReaderKind.REPLAY, group="g"),
    "what is not there": final("x", "y") + fetch(1, 0, "0:x 1:y 2:z", 2, reader=ReaderKind.REPLAY, group="g"),
    "what is there in another partition": (
        final("x", "y") + final("z", partition=1)
        + fetch(1, 0, "0:z 1:y", 2, partition=1, reader=ReaderKind.REPLAY, group="g")
    ),
    "a group's epoch rose by itself": progress(1, 0) + progress(2, 1),
    "a group's epoch rose by another's seek": progress(1, 0) + seek(2, group="h") + progress(3, 1),
    "a group's epoch rose by a refused seek": progress(1, 0) + seek(2, outcome=FAIL) + progress(3, 1),
    "a group's epoch rose before its seek": progress(1, 0) + progress(2, 1) + seek(3),
    "a group's epoch rose by two with one seek": progress(1, 3) + seek(2) + progress(3, 5),
    "a group's epoch rose by a consume": progress(1, 0) + seek(2, verb=OwnerVerb.CONSUME) + progress(3, 1),
    "a group's epoch rose by a seek in another topic": progress(1, 0) + seek(2, topic="u") + progress(3, 1),
}  # fmt: skip

# Each looks like a break at first sight.
NEARLY: dict[str, Rows] = {
    "the same bytes": final(keyed("x", "k"), "y") + fetch(1, 0, "0:x:k 1:y", 2, reader=ReaderKind.REPLAY, group="g"),
    "no keys told": final(keyed("x", "k")) + fetch(1, 0, "0:x", 1, reader=ReaderKind.REPLAY, group="g"),
    "retired since": final("z", log_start=2) + fetch(1, 0, "0:x 1:y 2:z", 3, reader=ReaderKind.REPLAY, group="g"),
    "all retired since": final(log_start=2) + fetch(1, 0, "0:x 1:y", 2, reader=ReaderKind.REPLAY, group="g"),
    "its own seek": progress(1, 0) + seek(2) + progress(3, 1) + progress(4, 1),
    "its own seek, followed late": progress(1, 0) + seek(2) + progress(3, 0) + progress(9, 1),
    "a seek before the first look, followed late": seek(1) + progress(2, 0) + progress(3, 1),
    "an unknown seek that was repeated": progress(1, 0) + seek(2, outcome=INFO) + progress(3, 2),
    "a seek under way": progress(1, 0) + seek(2, completed_ns=0, outcome=INFO) + progress(3, 1),
    "two groups": progress(1, 0) + progress(2, 4, group="h"),
    "two partitions, one of them late": progress(1, 1) + progress(2, 0, partition=1),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s19_finds_a_break(name: str) -> None:
    assert_broken(s19, BROKEN[name])


@pytest.mark.parametrize("name", NEARLY)
def test_s19_leaves_alone_what_only_looks_like_one(name: str) -> None:
    assert_kept(s19, NEARLY[name])


def test_s19_of_an_empty_history() -> None:
    assert_nothing_said_of_nothing(s19)
