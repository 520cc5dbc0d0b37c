"""S14: no considered message is missing from the sums, and a redrive moves each dead letter once."""

from __future__ import annotations

from typing import Any

import pytest

from prove.history.tables import text_id
from tests.unit.prove.checker.lease_rows import (
    DIED,
    GROUP,
    TOPIC,
    Row,
    Rows,
    ack,
    consume,
    end,
    found,
    letter,
    sample,
)


def moved(offset: int, copy: int, **more: Any) -> Row:
    """Return a dead letter of key `k` that was redriven into its own partition."""
    told = {"hash": 100 + copy, "key": text_id("k"), "redriven": 1, "copy_topic": TOPIC, "copy_partition": 0}
    return letter(offset, **{**told, "copy_offset": copy, "copy_hash": 100 + copy, **more})


def cut(to: int) -> Rows:
    return [("cut", {"topic": TOPIC, "group": GROUP, "partition": 0, "first": 0, "end": to})]


BROKEN: dict[str, list[Rows]] = {
    "a message vanished from the sums": [
        consume(0, 1, "0 1"), sample(5, count=2, committed=0, acked=0, leased=1), ack(10, 1, 0, 1), end("kl"),
    ],
    "at the end": [consume(0, 1, "0 1"), ack(10, 1, 0, 1), end("kl", acked=1)],
    "a dead letter without the cursor": [*DIED, sample(320, count=1, acked=0), end(letters=[letter(0)])],
    "committed beyond the frontier": [sample(5, count=2, frontier=1, acked=1), end("kl")],
    "a frontier beyond the log": [sample(5, count=2, high_watermark=1), end("kl")],
    "more published than there": [consume(0, 1, "0"), ack(10, 1, 0), end("kl", count=1)],
    "fewer published than there": [consume(0, 1, "0"), ack(10, 1, 0), end("k", count=2)],
    "dead without a letter": [*DIED, end(dead=1, acked=0)],
    "redriven twice": [end("kk", letters=[moved(0, 1, redriven=2)])],
    "two letters as one": [end("kkk", letters=[moved(0, 2), moved(1, 2)])],
    "redriven with other bytes": [end("kk", letters=[moved(0, 1, copy_hash=7)])],
    "redriven with another key": [end("kl", letters=[moved(0, 1)])],
    "redriven without a key": [end("k-", letters=[moved(0, 1)])],
    "redriven into nothing": [end("kk", letters=[moved(0, 5, copy_hash=0)])],
    "redriven to nowhere": [end("kk", letters=[moved(0, -1, copy_hash=0)])],
}  # fmt: skip

VALID: dict[str, list[Rows]] = {
    "on the way": [
        consume(0, 1, "0 1"), sample(5, count=2, committed=0, acked=0, leased=2), ack(10, 1, 0, 1), end("kl"),
    ],
    "some of each": [sample(5, count=5, committed=0, acked=1, waiting=1, skipped=2, filtered=1), end("klmno")],
    "from a start": [sample(5, count=5, start=2, committed=2, acked=1, leased=2), end("klmno", start=2, acked=3)],
    "a sample without a response": [sample(5, count=2, acked=0, outcome=2), end("kl")],
    "dead": [*DIED, end(letters=[letter(0)])],
    "cut by retention": [end("..k", cut=2, acked=1), cut(2)],
    "redriven": [end("kk", letters=[moved(0, 1)])],
    "redriven, and the copy was cut": [end("...k", letters=[moved(0, 1, copy_hash=0)]), cut(3)],
    "redriven into another topic": [end("kl", letters=[moved(0, 1, copy_topic=7)])],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s14_is_broken(name: str) -> None:
    assert found("S14", BROKEN[name])


@pytest.mark.parametrize("name", VALID)
def test_s14_nearly_is(name: str) -> None:
    assert found("S14", VALID[name]) == []


def test_s14_of_nothing() -> None:
    assert found("S14", []) == []
