"""S15: a message is never delivered while an earlier message of its key is open or waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakelog.model.group import Order
from tests.unit.prove.checker.lease_rows import (
    DIED,
    FAILED_ONCE,
    LOST,
    RULES,
    Rows,
    ack,
    acked,
    consume,
    end,
    found,
    letter,
    nack,
    seek,
)

BESIDE = [consume(0, 1, "0"), consume(5, 2, "1", "b"), ack(10, 1, 0), acked(20, 2, 1)]

BROKEN: dict[str, list[Rows]] = {
    "while the one before is open": [*BESIDE, end("kk")],
    "by the same owner, in another lease": [
        consume(0, 1, "0"), consume(5, 2, "1"), ack(10, 1, 0), ack(20, 2, 1), end("kk"),
    ],
    "while the one before waits": [
        *FAILED_ONCE[:2], consume(20, 2, "1", "b"), acked(30, 2, 1), consume(300, 3, "0:2:1"), ack(310, 3, 0),
        end("kk"),
    ],
    "before the one before was ever given": [
        consume(0, 1, "1"), ack(5, 1, 1), consume(10, 2, "0"), ack(20, 2, 0), end("kk"),
    ],
    "with another key between": [
        consume(0, 1, "0 1"), consume(5, 2, "2", "b"), ack(10, 1, 0, 1), acked(20, 2, 2), end("klk"),
    ],
    "behind what a filter took": [
        consume(0, 1, "0"), consume(5, 2, "2", "b"), ack(10, 1, 0), acked(20, 2, 2), end("kkk", filtered=1, acked=2),
    ],
    "in a later epoch": [
        consume(0, 1, "0 1"), ack(1, 1, 0, 1), seek(5), consume(10, 2, "0"), consume(15, 3, "1", "b"), ack(20, 2, 0),
        acked(30, 3, 1), end("kk", epoch=1),
    ],
}  # fmt: skip

VALID: dict[str, list[Rows]] = {
    "a key in one lease": [consume(0, 1, "0 1"), ack(10, 1, 0), ack(20, 1, 1), end("kk")],
    "a key one after the other": [
        consume(0, 1, "0"), ack(10, 1, 0), consume(11, 2, "1", "b"), acked(20, 2, 1), end("kk"),
    ],
    "finished by an ack that may have happened": [
        consume(0, 1, "0"), ack(10, 1, 0, **LOST), consume(11, 2, "1", "b"), acked(20, 2, 1), end("kk"),
    ],
    "a nack gives back its key": [
        consume(0, 1, "0 1"), nack(10, 1, 0), consume(300, 2, "0:2:1 1:2", "b"), acked(310, 2, 0, 1), end("kk"),
    ],
    "a dead letter frees its key": [*DIED, consume(320, 3, "1"), ack(330, 3, 1), end("kk", letters=[letter(0)])],
    "two keys": [*BESIDE, end("kl")],
    "without keys": [*BESIDE, end("--")],
    "the one before was filtered": [consume(0, 1, "1"), ack(5, 1, 1), end("kk", filtered=1, acked=1)],
    "the one before expired": [
        *FAILED_ONCE[:2], consume(400, 2, "1", "b"), acked(410, 2, 1), end("kk", expired=1, acked=1),
    ],
    "the one before is before the start": [consume(0, 1, "1"), ack(5, 1, 1), end("kk", start=1, acked=1)],
    "the one before is before the start of an earlier epoch": [
        consume(0, 1, "1"), ack(1, 1, 1), seek(5), consume(10, 2, "0"), ack(20, 2, 0), consume(30, 3, "1"),
        ack(40, 3, 1), end("kk", epoch=1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s15_is_broken(name: str) -> None:
    (wrong,) = found("S15", BROKEN[name])
    assert wrong.place in (("t", 0, 1), ("t", 0, 2))


@pytest.mark.parametrize("name", VALID)
def test_s15_nearly_is(name: str) -> None:
    assert found("S15", VALID[name]) == []


@pytest.mark.parametrize(("order", "wrong"), [(Order.PARTITION, 1), (Order.KEY, 0), (Order.NONE, 0)])
def test_s15_order_of_the_partition(order: Order, wrong: int) -> None:
    assert len(found("S15", [*BESIDE, end("kl")], rules=replace(RULES, order=order))) == wrong


def test_s15_no_order() -> None:
    assert found("S15", [*BESIDE, end("kk")], rules=replace(RULES, order=Order.NONE)) == []


def test_s15_of_nothing() -> None:
    assert found("S15", []) == []
