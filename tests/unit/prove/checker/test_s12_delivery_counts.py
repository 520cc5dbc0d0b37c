"""S12: deliveries count without a gap; failures are nacks and expiries while alone; the limit makes a dead letter."""

from __future__ import annotations

import pytest

from prove.checker.invariant import DATABASE_CLOCK_JUMPS, FaultInterval
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
    extend,
    found,
    letter,
    lost_consume,
    nack,
    said,
    seek,
)

BROKEN: dict[str, list[Rows]] = {
    "a number is missing": [consume(0, 1, "0"), consume(1000, 2, "0:3", "b"), acked(1100, 2, 0), end()],
    "it begins with 2": [consume(0, 1, "0:2"), ack(10, 1, 0), end()],
    "more are missing than were lost": [lost_consume(0), consume(1000, 2, "0:3", "b"), acked(1010, 2, 0), end()],
    "what was lost came later": [consume(0, 2, "0:2", "b"), acked(10, 2, 0), lost_consume(20), end()],
    "a number twice": [consume(0, 1, "0"), consume(1000, 2, "0", "b"), acked(1100, 2, 0), end()],
    "a nack not counted": [*FAILED_ONCE[:2], consume(300, 2, "0:2", "b"), acked(310, 2, 0), end()],
    "counted on the nack and not on the lease": [
        consume(0, 1, "0"), consume(1000, 2, "0", "b"), nack(1010, 2, 0, owner="b"), consume(1300, 3, "0:2:1"),
        ack(1310, 3, 0), end(),
    ],
    "a refused nack counted": [
        consume(0, 1, "0 1"), nack(1001, 1, 0, **FAILED), consume(1010, 2, "0:2:1", "b"), acked(1020, 2, 0),
        consume(1010, 3, "1:2", "b"), acked(1020, 3, 1), end("kl"),
    ],
    "failed by its neighbour's death": [
        consume(0, 1, "0 1"), consume(1000, 2, "0:2:1", "b"), acked(1010, 2, 0), consume(1000, 3, "1:2", "b"),
        acked(1010, 3, 1), end("kl"),
    ],
    "failed by the first end of a lease": [
        consume(0, 1, "0"), consume(1200, 2, "0:2:1", "b"), acked(1210, 2, 0), end(),
    ],
    "failed beside others": [
        consume(0, 1, "0", suspect=True, together=2), consume(1200, 2, "0:2:1", "b"), acked(1210, 2, 0), end(),
    ],
    "failures at the first delivery": [consume(0, 1, "0:1:1"), ack(10, 1, 0), end()],
    "delivered at the limit": [*DIED[:3], consume(1400, 3, "0:3:2"), ack(1410, 3, 0), end()],
    "at the limit and not dead": [*FAILED_ONCE, nack(310, 2, 0, owner="b"), end(acked=1)],
    "died too early": [consume(0, 1, "0"), nack(10, 1, 0, dead=(0,)), end(letters=[letter(0, 1, 1)])],
    "died and never failed": [consume(0, 1, "0 1"), ack(10, 1, 1), end("kl", letters=[letter(0, 2, 1)])],
    "died and was never delivered": [end(letters=[letter(0)])],
    "the letter has too few deliveries": [*DIED, end(letters=[letter(0, 2, 1)])],
    "the letter has too many deliveries": [*DIED, end(letters=[letter(0, 2, 3)])],
    "died in no epoch": [
        *DIED, seek(400), consume(500, 3, "0"), ack(510, 3, 0), end(letters=[letter(0, 2, 3)], epoch=1),
    ],
}  # fmt: skip

VALID: dict[str, list[Rows]] = {
    "nacked behind one whose key went with the log": [
        consume(0, 1, "0 1"), nack(10, 1, 0, 1), consume(300, 2, "1:2", "b"), acked(310, 2, 1),
        end(".l", cut=1, acked=1),
    ],
    "nacked, due, acked": [*FAILED_ONCE, acked(310, 2, 0), end()],
    "failed to death": [*DIED, end(letters=[letter(0)])],
    "fatal": [consume(0, 1, "0"), said(OwnerVerb.FAIL, 10, 1, 0, dead=(0,)), end(letters=[letter(0, 1, 1)])],
    "the end of a lease": [
        consume(0, 1, "0 1"), ack(10, 1, 1), consume(1000, 2, "0:2", "b"), acked(1010, 2, 0), end("kl"),
    ],
    "expired alone": [
        consume(0, 1, "0"), consume(1000, 2, "0:2", "b", suspect=True), consume(2200, 3, "0:3:1"), ack(2210, 3, 0),
        end(),
    ],
    "expired after everything else was put aside": [
        consume(0, 1, "0", suspect=True, together=2), extend(10, 1, 1010), consume(1300, 2, "0:2:1", "b"),
        acked(1310, 2, 0), end(),
    ],
    "died of owners that were lost": [
        consume(0, 1, "0"), consume(1000, 2, "0:2", "b", suspect=True), consume(2200, 3, "0:3:1", suspect=True),
        end(letters=[letter(0, 2, 3)]),
    ],
    "a lost nack that happened": [
        FAILED_ONCE[0], nack(10, 1, 0, **LOST), FAILED_ONCE[2], acked(310, 2, 0), end(),
    ],
    "a lost nack that did not": [
        consume(0, 1, "0"), nack(10, 1, 0, **LOST), consume(1000, 2, "0:2", "b"), acked(1010, 2, 0), end(),
    ],
    "a lost consume took it once": [lost_consume(0), consume(1000, 2, "0:2:1", "b"), acked(1010, 2, 0), end()],
    "a consume that gave up took it once": [
        lost_consume(0, outcome=0, took=9500), consume(11000, 2, "0:2", "b"), acked(11010, 2, 0), end(),
    ],
    "of a key only the first has failed": [
        consume(0, 1, "0 1"), nack(10, 1, 0, 1), consume(300, 2, "0:2:1 1:2", "b"), acked(310, 2, 0, 1), end("kk"),
    ],
    "a nack of what went back with its key": [
        consume(0, 1, "0 1"), nack(10, 1, 0), nack(20, 1, 1), consume(300, 2, "0:2:1 1:2", "b"), acked(310, 2, 0, 1),
        end("kk"),
    ],
    "of two keys both have failed": [
        consume(0, 1, "0 1"), nack(10, 1, 0, 1), consume(300, 2, "0:2:1 1:2:1", "b"), acked(310, 2, 0, 1), end("kl"),
    ],
    "counted from 1 after a seek": [
        *FAILED_ONCE[:2], seek(20), consume(30, 2, "0"), ack(40, 2, 0), end(epoch=1),
    ],
    "died before a seek": [*DIED, seek(400), consume(500, 3, "0"), ack(510, 3, 0), end(letters=[letter(0)], epoch=1)],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_s12_is_broken(name: str) -> None:
    assert all(each.place is not None for each in found("S12", BROKEN[name]))
    assert found("S12", BROKEN[name])


@pytest.mark.parametrize("name", VALID)
def test_s12_nearly_is(name: str) -> None:
    assert found("S12", VALID[name]) == []


def test_s12_of_two_keys_one_is_not_counted() -> None:
    broken = [
        consume(0, 1, "0 1"), nack(10, 1, 0, 1), consume(300, 2, "0:2:1 1:2", "b"), acked(310, 2, 0, 1), end("kl"),
    ]  # fmt: skip
    assert [each.place for each in found("S12", broken)] == [("t", 0, 1)]


def test_s12_after_a_jump_of_the_databases_clock_a_grant_may_be_over_at_once() -> None:
    jump = FaultInterval(kind=DATABASE_CLOCK_JUMPS, began_ns=500_000_000, ended_ns=600_000_000)
    missing = [consume(0, 1, "0"), consume(1000, 3, "0:3", "b"), acked(1100, 3, 0), end()]
    assert found("S12", missing) and not found("S12", missing, faults=(jump,))
    more = [consume(0, 1, "0"), consume(1000, 4, "0:4", "b"), acked(1100, 4, 0), end()]
    before = [consume(0, 1, "0:2"), acked(100, 1, 0), end()]
    assert found("S12", more, faults=(jump,)) and found("S12", before, faults=(jump,))


def test_s12_of_nothing() -> None:
    assert found("S12", []) == []
