"""S22: reads across hot and cold have no gap and no duplicate."""

from __future__ import annotations

import pytest

from prove.checker import s22_hot_cold_reads as s22
from prove.history.tables import ReaderKind
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import Rows, fetch, final, keyed, row


def cold(messages: str, counter: int = 1, process: str = "files") -> Rows:
    """Return the files as an independent reader found them."""
    return fetch(counter, 0, messages, 0, reader=ReaderKind.COLD, process=process)


def seen(offset: int, value: str) -> Rows:
    """Return one message of a Spark read."""
    return row(
        "seen", topic="t", partition=0, offset=offset, hash=value, reader=ReaderKind.SPARK, process="s", counter=1
    )


BROKEN: dict[str, Rows] = {
    "Spark left one out": final(*"abcd") + fetch(1, 0, "0:a 1:b 3:d", 4, reader=ReaderKind.SPARK),
    "Spark read one twice": final(*"abcd") + fetch(1, 0, "0:a 1:b 1:b 2:c", 4, reader=ReaderKind.SPARK),
    "Spark began too late": final(*"abcd") + fetch(1, 1, "2:c 3:d", 4, reader=ReaderKind.SPARK),
    "a replay left one out": final(*"abcd") + fetch(1, 0, "0:a 2:c", 4, reader=ReaderKind.REPLAY),
    "a fetch left one out": final(*"abcd") + fetch(1, 0, "0:a 2:c", 4),
    "a fetch came out of order": final(*"abcd") + fetch(1, 0, "1:b 0:a 2:c", 4),
    "a file is missing between": final(*"abcd") + cold("0:a 1:b 3:d"),
    "two files have the same": final(*"abcd") + cold("0:a 1:b 1:b 2:c"),
    "a file has other bytes": final(*"abcd") + cold("0:a 1:z"),
    "a file has another key": final(keyed("a", "k")) + cold("0:a:l"),
    "a file has what the log has not": final(*"ab") + cold("0:a 1:b 2:c"),
    "a file has all that the log has not": final(end=2) + cold("0:a 1:b"),
    "a gap, and the call itself is not known": (
        seen(0, "a") + seen(2, "c") + fetch(1, 9, "", 9, log_start=9, process="other", reader=ReaderKind.SPARK)
    ),
    "a gap, and no call is known": seen(0, "a") + seen(2, "c"),
}  # fmt: skip

# Each looks like a break at first sight.
NEARLY: dict[str, Rows] = {
    "hot and cold in one read": final(*"abcd")
    + fetch(1, 1, "1:b 2:c 3:d", 4, reader=ReaderKind.SPARK) + cold("0:a 1:b"),
    "read twice, by two calls": (
        final(*"abcd") + fetch(1, 0, "0:a 1:b", 4, reader=ReaderKind.SPARK)
        + fetch(2, 0, "0:a 1:b", 4, reader=ReaderKind.SPARK)
    ),
    "retired below the log start": (
        final("c", "d", log_start=2) + fetch(1, 0, "2:c", 4, reader=ReaderKind.REPLAY, log_start=2)
    ),
    "files below the log start": final("c", "d", log_start=2) + cold("0:a 1:b 2:c"),
    "a hole below the log start": final("d", log_start=3) + cold("0:a 2:c 3:d"),
    "files read twice": final(*"abcd") + cold("0:a 1:b") + cold("0:a 1:b", counter=2),
    "files of which a part is not yet cold": final(*"abcd") + cold("1:b 2:c"),
    "nothing is cold": final(*"abcd"),
    "the end was not read": cold("0:a"),
    "one Spark read of two partitions": (
        final(*"abc") + final(*"abc", partition=1)
        + fetch(1, 0, "0:a 1:b", 3, reader=ReaderKind.SPARK)
        + fetch(1, 2, "2:c", 3, reader=ReaderKind.SPARK, partition=1)
    ),
    "files without keys": final(keyed("a", "k")) + cold("0:a"),
    "files with keys": final(keyed("a", "k")) + cold("0:a:k"),
    "a call without a recorded result": (
        final(*"abcdef") + fetch(1, 0, "0:a 1:b", 6, reader=ReaderKind.SPARK)
        + row("read", topic="t", partition=0, reader=ReaderKind.SPARK, process="s", counter=1, offset=3,
              first=3, count=2)
    ),
    "read by two readers with equal counters": final("a") + cold("0:a") + cold("0:a", process="others"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s22_finds_a_break(name: str) -> None:
    assert_broken(s22, BROKEN[name])


@pytest.mark.parametrize("name", NEARLY)
def test_s22_leaves_alone_what_only_looks_like_one(name: str) -> None:
    assert_kept(s22, NEARLY[name])


def test_s22_of_an_empty_history() -> None:
    assert_nothing_said_of_nothing(s22)


def test_s22_says_what_the_files_have() -> None:
    found = assert_broken(s22, BROKEN["two files have the same"])
    assert found[0].what == "the files have t/0@1 twice"
