"""S11: after the drain each message has exactly one final state, and is counted."""

from __future__ import annotations

import pytest

from prove.history.tables import OwnerVerb
from tests.unit.prove.checker.lease_rows import (
    DIED,
    FAILED,
    FAILED_ONCE,
    LOST,
    Rows,
    ack,
    acked,
    consume,
    end,
    found,
    letter,
    said,
    sample,
    seek,
)

BROKEN: dict[str, list[Rows]] = {
    "acked and dead": [*FAILED_ONCE, acked(310, 2, 0), end(letters=[letter(0)])],
    "ended as nothing": [consume(0, 1, "0"), ack(10, 1, 0), end("kl", acked=1)],
    "two dead letters": [*DIED, end(letters=[letter(0), letter(0)], dead=1, acked=0)],
    "not drained": [consume(0, 1, "0"), ack(10, 1, 0), end(acked=0, leased=1, committed=0)],
    "not committed": [consume(0, 1, "0"), ack(10, 1, 0), end(committed=0)],
    "not considered": [consume(0, 1, "0"), ack(10, 1, 0), end(frontier=0, committed=0, acked=0)],
    "an ack not counted": [consume(0, 1, "0 1"), ack(10, 1, 0, 1), end("kl", acked=1, filtered=1)],
    "an ack counted that was none": [consume(0, 1, "0 1"), ack(10, 1, 0), end("kl", filtered=1)],
    "a dead letter not counted": [*DIED, end(letters=[letter(0)], dead=0, discarded=1, acked=0)],
    "a refused ack counted": [consume(0, 1, "0"), ack(10, 1, 0, **FAILED), end()],
    "an ack of before the seek counted": [consume(0, 1, "0"), ack(5, 1, 0), seek(10), end(epoch=1)],
    "nothing known of the end": [
        consume(0, 1, "0"), ack(10, 1, 0), [row for row in end() if row[0] != "progress"], sample(20, count=1),
    ],
}  # fmt: skip

VALID: dict[str, list[Rows]] = {
    "acked": [consume(0, 1, "0 1"), ack(10, 1, 0), ack(20, 1, 1), end("kl")],
    "an ack of unknown outcome": [consume(0, 1, "0"), ack(10, 1, 0, **LOST), end()],
    "dead": [*DIED, end(letters=[letter(0)])],
    "discarded": [consume(0, 1, "0"), said(OwnerVerb.DISCARD, 10, 1, 0), end(acked=0, discarded=1)],
    "filtered": [consume(0, 1, "0"), ack(10, 1, 0), end("kl", acked=1, filtered=1)],
    "before the start": [consume(0, 1, "1"), ack(10, 1, 1), end("kl", start=1, acked=1)],
    "acked and then cut": [consume(0, 1, "0 1"), ack(10, 1, 0, 1), end(".l")],
    "again after a seek": [
        consume(0, 1, "0"), ack(5, 1, 0), seek(10), consume(20, 2, "0"), ack(30, 2, 0), end(epoch=1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s11_is_broken(name: str) -> None:
    assert found("S11", BROKEN[name])


@pytest.mark.parametrize("name", VALID)
def test_s11_nearly_is(name: str) -> None:
    assert found("S11", VALID[name]) == []


def test_s11_of_nothing() -> None:
    assert found("S11", []) == []
