"""S9: an answer with a stale token, by another owner or for an old lease is refused, and changes nothing."""

from __future__ import annotations

import pytest

from tests.unit.prove.checker.lease_rows import (
    FAILED,
    LOST,
    Rows,
    ack,
    acked,
    consume,
    end,
    extend,
    found,
    lost_consume,
    nack,
    seek,
)

BROKEN: dict[str, list[Rows]] = {
    "a stale token accepted": [
        consume(0, 1, "0"), consume(1000, 2, "0:2", "b"), ack(1100, 1, 0), acked(1200, 2, 0), end(),
    ],
    "a stale token accepted within its time": [
        consume(0, 1, "0"), nack(10, 1, 0), consume(300, 2, "0:2:1", "b"), ack(400, 1, 0), acked(410, 2, 0), end(),
    ],
    "accepted after the end": [consume(0, 1, "0"), ack(1001, 1, 0), end()],
    "given back after the end, though only one of another key was before": [
        consume(0, 1, "0 1"), nack(10, 1, 0, **LOST), nack(1500, 1, 1), consume(2000, 2, "0:2:1 1:2", "b"),
        acked(2010, 2, 0, 1), end("kl"),
    ],
    "another verb after the end": [consume(0, 1, "0"), nack(10, 1, 0), ack(2000, 1, 0), end()],
    "a repeat of what was refused": [consume(0, 1, "0"), ack(1001, 1, 0, **FAILED), ack(1010, 1, 0), end()],
    "an extend accepted after the end": [consume(0, 1, "0"), extend(1001, 1, 2001), ack(1500, 1, 0), end()],
    "an extend after an extended end": [
        consume(0, 1, "0"), extend(500, 1, 1500), extend(1501, 1, 2501), ack(1600, 1, 0), end(),
    ],
    "an extend of another owner": [consume(0, 1, "0"), extend(500, 1, 1500, owner="b"), ack(600, 1, 0), end()],
    "an extend across a seek": [
        consume(0, 1, "0"), seek(10), extend(20, 1, 1020), consume(30, 2, "0"), ack(40, 2, 0), end(epoch=1),
    ],
    "of another owner": [consume(0, 1, "0"), acked(10, 1, 0), end()],
    "of an unrecorded lease": [consume(0, 1, "0"), ack(10, 1, 0), ack(20, 7, 0), end()],
    "of a lease that only another can have got": [
        lost_consume(0, "b"), consume(0, 1, "0"), ack(10, 1, 0), ack(20, 7, 0), end(),
    ],
    "a refused ack finished it": [consume(0, 1, "0"), ack(10, 1, 0, **FAILED), end()],
    "more were finished by refused acks than ended by themselves": [
        consume(0, 1, "0 1"), ack(10, 1, 0, 1, **FAILED), end("kl", expired=1, acked=1),
    ],
    "an ack refused after it was accepted": [consume(0, 1, "0"), ack(10, 1, 0), ack(2000, 1, 0, **FAILED), end()],
    "accepted across a seek": [
        consume(0, 1, "0"), seek(10), ack(20, 1, 0), consume(30, 2, "0"), ack(40, 2, 0), end(epoch=1),
    ],
}  # fmt: skip

VALID: dict[str, list[Rows]] = {
    "an ack refused because of another message that it names": [
        consume(0, 1, "0 1"), ack(10, 1, 0), nack(20, 1, 1), ack(30, 1, 0, 1, **FAILED), consume(300, 2, "1:2:1", "b"),
        acked(310, 2, 1), end("kl"),
    ],
    "another owner's ack refused": [consume(0, 1, "0"), ack(10, 1, 0), ack(20, 1, 0, owner="b", **FAILED), end()],
    "given back with the one before it, and again": [
        consume(0, 1, "0 1"), nack(10, 1, 0, **LOST), nack(1500, 1, 1), consume(2000, 2, "0:2:1 1:2", "b"),
        acked(2010, 2, 0, 1), end("kk"),
    ],
    "a refused ack, then another's": [
        consume(0, 1, "0"), ack(1001, 1, 0, **FAILED), consume(1002, 2, "0:2", "b"), acked(1010, 2, 0), end(),
    ],
    "a lost answer, repeated": [consume(0, 1, "0"), ack(10, 1, 0, **LOST), ack(2000, 1, 0), end()],
    "an answer repeated after the message went on": [
        consume(0, 1, "0"), nack(10, 1, 0), consume(300, 2, "0:2:1", "b"), nack(400, 1, 0), acked(410, 2, 0), end(),
    ],
    "at the end": [consume(0, 1, "0"), ack(1000, 1, 0), end()],
    "extended": [consume(0, 1, "0"), extend(500, 1, 1500), ack(1400, 1, 0), end()],
    "extended twice": [consume(0, 1, "0"), extend(900, 1, 1900), extend(1800, 1, 2800), ack(2700, 1, 0), end()],
    "after an extend that may have happened": [
        consume(0, 1, "0"), extend(500, 1, 0, **LOST), extend(1200, 1, 2200), ack(2100, 1, 0), end(),
    ],
    "of a lease that a lost consume may have brought": [lost_consume(0), ack(20, 7, 0), end()],
    "refused and then expired": [consume(0, 1, "0"), ack(1001, 1, 0, **FAILED), end(expired=1, acked=0)],
    "refused and not finished": [
        consume(0, 1, "0"), ack(1001, 1, 0, **FAILED), end(committed=0, acked=0, waiting=1),
    ],
    "refused across a seek": [
        consume(0, 1, "0"), seek(10), ack(15, 1, 0, **FAILED), consume(20, 2, "0", "b"), acked(30, 2, 0), end(epoch=1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s9_is_broken(name: str) -> None:
    assert found("S9", BROKEN[name])


@pytest.mark.parametrize("name", VALID)
def test_s9_nearly_is(name: str) -> None:
    assert found("S9", VALID[name]) == []


def test_s9_says_who_said_it() -> None:
    (wrong,) = found("S9", BROKEN["of another owner"])
    assert str(wrong) == "S9: message 0 of partition 0: ack by b with token 1 was accepted, of the lease of a [b-10]"


def test_s9_of_nothing() -> None:
    assert found("S9", []) == []


def test_s9_allows_for_clocks_that_differ() -> None:
    history = [consume(0, 1, "0"), ack(1001, 1, 0), end()]
    assert found("S9", history, targets={"clock_ms": 10}) == []
