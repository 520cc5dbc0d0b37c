"""S10: after an accepted ack a message is not delivered again in the same position epoch."""

from __future__ import annotations

import pytest

from prove.history.tables import OwnerVerb
from tests.unit.prove.checker.lease_rows import DIED, FAILED, LOST, Rows, ack, acked, consume, end, found, letter, said
from tests.unit.prove.checker.lease_rows import seek as sought

BROKEN: dict[str, list[Rows]] = {
    "delivered after its ack": [
        consume(0, 1, "0"), ack(10, 1, 0), consume(20, 2, "0:2", "b"), acked(30, 2, 0), end(),
    ],
    "delivered after its discard": [
        consume(0, 1, "0"), said(OwnerVerb.DISCARD, 10, 1, 0), consume(20, 2, "0:2", "b"), acked(30, 2, 0), end(),
    ],
    "told again after its ack": [consume(0, 1, "0"), ack(10, 1, 0), consume(20, 1, "0"), end()],
    "delivered after its death": [*DIED, consume(600, 3, "0:3:1"), end(letters=[letter(0)])],
    "delivered after its ack in a later epoch": [
        consume(0, 1, "0"), ack(5, 1, 0), sought(10), consume(20, 2, "0"), ack(30, 2, 0), consume(40, 3, "0:2"),
        end(epoch=1),
    ],
}  # fmt: skip

VALID: dict[str, list[Rows]] = {
    "an ack of unknown outcome": [
        consume(0, 1, "0"), ack(10, 1, 0, **LOST), consume(1000, 2, "0:2", "b"), acked(1010, 2, 0), end(),
    ],
    "a refused ack": [
        consume(0, 1, "0"), ack(1001, 1, 0, **FAILED), consume(1002, 2, "0:2", "b"), acked(1010, 2, 0), end(),
    ],
    "told again before its ack": [consume(0, 1, "0"), consume(5, 1, "0", granted=0), ack(10, 1, 0), end()],
    "again after a seek": [
        consume(0, 1, "0"), ack(5, 1, 0), sought(10), consume(20, 2, "0"), ack(30, 2, 0), end(epoch=1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s10_is_broken(name: str) -> None:
    (wrong,) = found("S10", BROKEN[name])
    assert wrong.place == ("t", 0, 0) and len(wrong.calls) == 2


@pytest.mark.parametrize("name", VALID)
def test_s10_nearly_is(name: str) -> None:
    assert found("S10", VALID[name]) == []


def test_s10_of_nothing() -> None:
    assert found("S10", []) == []
