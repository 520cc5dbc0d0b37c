"""S3: an offset has one content, for every reader."""

from __future__ import annotations

import pytest

from prove.checker import s03_content_hashes as s03
from prove.history.tables import ReaderKind
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import Rows, fetch, final, publish, row

BROKEN: dict[str, Rows] = {
    "two acks of one offset": publish(1, "x", 0) + publish(2, "y", 0) + final("x"),
    "fetched otherwise than it ended": publish(1, "x") + publish(2, "y") + fetch(3, 0, "0:x", 1) + final("y"),
    "two fetches differ": fetch(3, 0, "0:x", 1) + fetch(4, 0, "0:y", 1) + final(),
    "a file has other bytes": final("x", "y") + fetch(0, 0, "0:x 1:z", 2, reader=ReaderKind.COLD),
    "delivered otherwise": final("x")
    + row("seen", topic="t", partition=0, offset=0, hash="y", reader=ReaderKind.DELIVERY),
    "replayed otherwise": final("x") + fetch(1, 0, "0:y", 1, reader=ReaderKind.REPLAY),
    "Spark read otherwise": final("x") + fetch(1, 0, "0:y", 1, reader=ReaderKind.SPARK),
}  # fmt: skip

# Each looks like a break at first sight.
NEARLY: dict[str, Rows] = {
    "the same content everywhere": publish(1, "x", 0) + fetch(2, 0, "0:x", 1) + final("x"),
    "the same offset of two partitions": (
        publish(1, "x", 0) + publish(2, "y", 0, partition=1) + final("x") + final("y", partition=1)
    ),
    "the same offset of two topics": final("x") + final("y", topic="u"),
    "a file that is read once more": (
        final("x", "y") + fetch(0, 0, "0:x 1:y", 2, reader=ReaderKind.COLD)
        + fetch(1, 0, "0:x 1:y", 2, reader=ReaderKind.SPARK)
    ),
    "an attempt of unknown outcome": publish(1, "x") + publish(2, "y", 0) + final("y"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s3_finds_a_break(name: str) -> None:
    assert_broken(s03, BROKEN[name])


@pytest.mark.parametrize("name", NEARLY)
def test_s3_leaves_alone_what_only_looks_like_one(name: str) -> None:
    assert_kept(s03, NEARLY[name])


def test_s3_of_an_empty_history() -> None:
    assert_nothing_said_of_nothing(s03)


def test_s3_says_who_saw_what() -> None:
    found = assert_broken(s03, publish(1, "x", 0) + fetch(2, 0, "0:y", 1) + final("x"))
    assert {each.what for each in found} == {"t/0@0 is x by publish and y by fetch"}
    assert set(found[0].calls) == {"a-1", "r-2"}
