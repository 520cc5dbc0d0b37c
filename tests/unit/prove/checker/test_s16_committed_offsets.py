"""S16: the committed offset is the end of the finished prefix, and never falls within a position epoch."""

from __future__ import annotations

import pytest

from tests.unit.prove.checker.lease_rows import (
    DIED,
    FAILED,
    LOST,
    Rows,
    ack,
    consume,
    end,
    found,
    letter,
    lost_consume,
    sample,
    seek,
)

TWO = consume(0, 1, "0 1")

BROKEN: dict[str, list[Rows]] = {
    "beyond an open message": [TWO, ack(10, 1, 1), sample(20, count=2, acked=1, leased=1), ack(30, 1, 0), end("kl")],
    "the highest ack": [
        TWO, ack(10, 1, 1), sample(20, count=2, committed=2, acked=1, leased=1), ack(30, 1, 0), end("kl"),
    ],
    "behind a finished one": [
        TWO, ack(10, 1, 0), sample(20, count=2, committed=0, acked=1, leased=1), ack(30, 1, 1), end("kl"),
    ],
    "behind a dead one": [*DIED, sample(320, count=1, committed=0, acked=0, dead=1), end(letters=[letter(0)])],
    "it fell": [
        TWO, ack(10, 1, 0, **LOST), sample(20, count=2, committed=1, acked=1, leased=1),
        sample(25, count=2, committed=0, acked=1, leased=1), ack(30, 1, 1), end("kl"),
    ],
    "it fell, with another sample between": [
        TWO, ack(10, 1, 0, **LOST), sample(20, count=2, committed=1, acked=1, leased=1),
        sample(15, took=10, count=2, committed=0, acked=0, leased=2),
        sample(22, took=9, count=2, committed=0, acked=0, leased=2), ack(30, 1, 1), end("kl"),
    ],
    "it fell at the end": [TWO, ack(10, 1, 0, 1, **LOST), sample(20, count=2), end("kl", committed=0)],
    "the epoch fell": [
        seek(5), consume(7, 1, "0 1"), ack(10, 1, 0, 1, **LOST), sample(20, count=2, epoch=1), end("kl", epoch=0),
    ],
    "below its start": [consume(0, 1, "1"), ack(5, 1, 1), end("kl", start=1, acked=1, committed=0)],
    "a refused ack counted": [TWO, ack(10, 1, 0, **FAILED), sample(20, count=2, committed=1), end("kl")],
    "more below it than were passed": [TWO, sample(20, count=2, acked=1, filtered=1), ack(30, 1, 0, 1), end("kl")],
    "beyond the log": [TWO, ack(10, 1, 0, 1), end("kl", committed=3)],
    "beyond what is finished in its epoch": [TWO, ack(1, 1, 0, 1), seek(5), sample(20, count=2, epoch=1), end("kl")],
}  # fmt: skip

VALID: dict[str, list[Rows]] = {
    "samples on the way": [
        consume(0, 1, "0 1 2"), sample(5, count=3, committed=0, acked=0, leased=3), ack(10, 1, 1),
        sample(20, count=3, committed=0, acked=1, leased=2), ack(30, 1, 0), ack(50, 1, 2),
        sample(40, took=20, count=3, committed=2, acked=2, leased=1), end("klm"),
    ],
    "a lost ack that counted": [TWO, ack(10, 1, 0, 1, **LOST), sample(20, count=2), end("kl")],
    "an ack while it was asked": [
        TWO, sample(9, took=5, count=2, committed=1), sample(9, took=5, count=2, committed=0), ack(10, 1, 0, 1),
        end("kl"),
    ],
    "over a filtered one": [
        consume(0, 1, "1"), ack(10, 1, 1), sample(20, count=2, acked=1, filtered=1),
        end("kl", acked=1, filtered=1),
    ],
    "over what was cut": [consume(0, 1, "2"), ack(10, 1, 2), sample(20, count=3, acked=1, cut=2), end("..k", cut=2)],
    "over a dead one of which only its letter is left": [
        lost_consume(0), lost_consume(1), consume(3000, 3, "1"), ack(3010, 3, 1),
        sample(3020, count=2, acked=1, dead=1), end(".k", letters=[letter(0)], acked=1),
    ],
    "over a dead one": [*DIED, sample(320, count=1, acked=0, dead=1), end(letters=[letter(0)])],
    "again after a seek": [
        TWO, ack(1, 1, 0, 1), sample(3, count=2), seek(5), sample(8, count=2, committed=0, epoch=1),
        consume(10, 2, "0 1"), ack(20, 2, 0, 1), end("kl", epoch=1),
    ],
    "a seek that said where the group begins": [
        seek(5), consume(10, 1, "0 1"), ack(20, 1, 0, 1), sample(30, count=2), end("kl", epoch=0),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s16_is_broken(name: str) -> None:
    assert found("S16", BROKEN[name])


@pytest.mark.parametrize("name", VALID)
def test_s16_nearly_is(name: str) -> None:
    assert found("S16", VALID[name]) == []


def test_s16_of_nothing() -> None:
    assert found("S16", []) == []
