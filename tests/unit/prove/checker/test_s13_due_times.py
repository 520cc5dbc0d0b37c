"""S13: no message is delivered before it is due."""

from __future__ import annotations

import pytest

from lakelog.model.group import Exponential
from prove.checker.invariant import GroupRules
from prove.history.tables import OwnerVerb
from tests.unit.prove.checker.lease_rows import (
    FAILED,
    FAILED_ONCE,
    LOST,
    Rows,
    ack,
    acked,
    consume,
    end,
    found,
    nack,
    said,
    seek,
)

BROKEN: dict[str, list[Rows]] = {
    "before its back-off": [*FAILED_ONCE[:2], consume(150, 2, "0:2:1", "b"), acked(160, 2, 0), end()],
    "before the delay that was asked for": [
        consume(0, 1, "0"), nack(10, 1, 0, delay_ms=900), consume(300, 2, "0:2:1", "b"), acked(310, 2, 0), end(),
    ],
    "a release with a delay": [
        consume(0, 1, "0"), said(OwnerVerb.RELEASE, 10, 1, 0, delay_ms=900),
        consume(300, 2, "0:2", "b"), acked(310, 2, 0),
        end(),
    ],
    "before the back-off of an end that failed it": [
        consume(0, 1, "0", suspect=True), consume(1100, 2, "0:2:1", "b"), acked(1110, 2, 0), end(),
    ],
}  # fmt: skip

VALID: dict[str, list[Rows]] = {
    "due": [*FAILED_ONCE, acked(310, 2, 0), end()],
    "a delay of nothing": [
        consume(0, 1, "0"), nack(10, 1, 0, delay_ms=0), consume(20, 2, "0:2:1", "b"), acked(30, 2, 0), end(),
    ],
    "a nack of what went back with its key": [
        consume(0, 1, "0 1"), nack(10, 1, 0), nack(200, 1, 1), consume(230, 2, "0:2:1", "b"), acked(240, 2, 0),
        consume(250, 3, "1:2", "b"), acked(260, 3, 1), end("kk"),
    ],
    "a release": [
        consume(0, 1, "0"), said(OwnerVerb.RELEASE, 10, 1, 0), consume(20, 2, "0:2", "b"), acked(30, 2, 0), end(),
    ],
    "a nack that may not have happened": [
        consume(0, 1, "0"), nack(10, 1, 0, delay_ms=9000, **LOST), consume(1000, 2, "0:2", "b"), acked(1010, 2, 0),
        end(),
    ],
    "a nack that was refused": [
        consume(0, 1, "0"), nack(1000, 1, 0, **FAILED), consume(1001, 2, "0:2", "b"), acked(1010, 2, 0), end(),
    ],
    "the shorter of two delays": [
        consume(0, 1, "0"), nack(10, 1, 0, delay_ms=100, **LOST), nack(20, 1, 0, delay_ms=900),
        consume(120, 2, "0:2:1", "b"), acked(130, 2, 0), end(),
    ],
    "expired alone, and its back-off": [
        consume(0, 1, "0"), consume(1000, 2, "0:2", "b", suspect=True), consume(2200, 3, "0:3:1"), ack(2210, 3, 0),
        end(),
    ],
    "after a seek": [*FAILED_ONCE[:2], seek(20), consume(30, 2, "0"), ack(40, 2, 0), end(epoch=1)],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s13_is_broken(name: str) -> None:
    (wrong,) = found("S13", BROKEN[name])
    assert "due at" in wrong.what and len(wrong.calls) == 2


@pytest.mark.parametrize("name", VALID)
def test_s13_nearly_is(name: str) -> None:
    assert found("S13", VALID[name]) == []


@pytest.mark.parametrize(("at", "wrong"), [(1540, 1), (1560, 0)])
def test_s13_the_second_back_off_is_longer(at: int, wrong: int) -> None:
    rules = GroupRules(retries=Exponential(max=5, base_seconds=0.5, jitter=0.2))
    history = [
        consume(0, 1, "0"), nack(10, 1, 0), consume(600, 2, "0:2:1"), nack(800, 2, 0), consume(at, 3, "0:3:2"),
        ack(at + 10, 3, 0), end(),
    ]  # fmt: skip
    assert len(found("S13", history, rules=rules)) == wrong


def test_s13_of_nothing() -> None:
    assert found("S13", []) == []
