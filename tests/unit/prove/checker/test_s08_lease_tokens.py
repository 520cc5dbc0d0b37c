"""S8: tokens of a message rise, and no two leases are valid at the same time."""

from __future__ import annotations

import pytest

from prove.history.tables import OwnerVerb
from tests.unit.prove.checker.lease_rows import (
    LOST,
    Rows,
    ack,
    acked,
    consume,
    end,
    extend,
    found,
    nack,
    said,
    seek,
)

BROKEN: dict[str, list[Rows]] = {
    "another owner before the expiry": [
        consume(0, 1, "0"), consume(999, 2, "0:2", "b"), acked(1001, 2, 0), end(),
    ],
    "another owner before the extended expiry": [
        consume(0, 1, "0"), extend(500, 1, 1500), consume(1200, 2, "0:2", "b"), acked(1300, 2, 0), end(),
    ],
    "another owner before the nack was sent": [
        consume(0, 1, "0"), consume(500, 2, "0:2:1", "b"), nack(600, 1, 0), acked(700, 2, 0), end(),
    ],
    "another owner by a clock that is ahead": [
        consume(0, 1, "0"), consume(500, 2, "0:2", "b", granted=9_000), acked(600, 2, 0), end(),
    ],
    "two owners with one token": [consume(0, 1, "0"), consume(1500, 1, "0:2", "b"), acked(1600, 1, 0), end()],
    "the token fell": [consume(0, 2, "0"), consume(1500, 1, "0:2", "b"), acked(1600, 1, 0), end()],
    "the number fell": [consume(0, 1, "0:2"), consume(1500, 2, "0", "b"), acked(1600, 2, 0), end()],
    "a nack of another key gives nothing back": [
        consume(0, 1, "0 1"), nack(10, 1, 0), consume(300, 2, "1:2", "b"), acked(310, 2, 1), end("kl"),
    ],
    "a nack of a later message of the key gives nothing back": [
        consume(0, 1, "0 1"), nack(10, 1, 1), consume(300, 2, "0:2", "b"), acked(310, 2, 0), end("kk"),
    ],
    "an ack in front gives nothing back": [
        consume(0, 1, "0 1"), ack(10, 1, 0), consume(300, 2, "1:2", "b"), acked(310, 2, 1), end("kk"),
    ],
}  # fmt: skip

VALID: dict[str, list[Rows]] = {
    "at the expiry": [consume(0, 1, "0"), consume(1000, 2, "0:2", "b"), acked(1001, 2, 0), end()],
    "before the expiry of an extend that was refused": [
        consume(0, 1, "0"), extend(999, 1, 1999, outcome=1), consume(1000, 2, "0:2", "b"), acked(1100, 2, 0), end(),
    ],
    "after a nack that may have happened": [
        consume(0, 1, "0"), nack(10, 1, 0, **LOST), consume(300, 2, "0:2:1", "b"), acked(310, 2, 0), end(),
    ],
    "told twice to the same owner": [consume(0, 1, "0"), consume(5, 1, "0", granted=0), ack(10, 1, 0), end()],
    "given back with its key": [
        consume(0, 1, "0 1"), nack(10, 1, 0), consume(300, 2, "0:2:1 1:2", "b"), acked(310, 2, 0, 1), end("kk"),
    ],
    "given back with what may be its key": [
        consume(0, 1, "0 1"), nack(10, 1, 0), consume(300, 2, "1:2", "b"), acked(310, 2, 1), end(".l", cut=1, acked=1),
    ],
    "released": [
        consume(0, 1, "0"), said(OwnerVerb.RELEASE, 10, 1, 0), consume(20, 2, "0:2", "b"), acked(30, 2, 0), end(),
    ],
    "after a seek": [
        consume(0, 1, "0"), seek(10), consume(20, 2, "0", "b"), acked(30, 2, 0), end(epoch=1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s8_is_broken(name: str) -> None:
    assert [each.place for each in found("S8", BROKEN[name])] in ([("t", 0, 0)], [("t", 0, 1)])


@pytest.mark.parametrize("name", VALID)
def test_s8_nearly_is(name: str) -> None:
    assert found("S8", VALID[name]) == []


def test_s8_says_who_had_it() -> None:
    (wrong,) = found("S8", BROKEN["another owner before the expiry"])
    assert "a holds it with token 1 until 1000, b got it at 999" in wrong.what
    assert wrong.calls == ("a-0", "b-999")


def test_s8_of_nothing() -> None:
    assert found("S8", []) == []


def test_s8_allows_for_clocks_that_differ() -> None:
    history = [consume(0, 1, "0"), consume(500, 2, "0:2:1", "b"), nack(505, 1, 0), acked(700, 2, 0), end()]
    assert found("S8", history)
    assert found("S8", history, targets={"clock_ms": 10}) == []
