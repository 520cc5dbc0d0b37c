"""L5: a message of a dead owner is leased again at most two seconds after its lease ends."""

from __future__ import annotations

import pytest

from prove.checker import l5_redelivery as l5
from prove.checker.invariant import FaultInterval
from prove.checker.judgement import ViolationTally
from tests.unit.prove.checker.lease_rows import (
    LOST,
    MS,
    Rows,
    ack,
    consume,
    end,
    extend,
    found,
    letter,
    lost_consume,
    nack,
    run,
    seek,
    tables,
)

LATE = [consume(0, 1, "0", "z"), consume(3100, 2, "0:2"), ack(3200, 2, 0), end()]

BROKEN: dict[str, list[Rows]] = {
    "never again": [consume(0, 1, "0 1", "z"), consume(1500, 2, "1:2"), ack(1600, 2, 1), end("kl")],
    "too late": [
        consume(0, 1, "0 1", "z"), consume(3100, 2, "0:2"), ack(3200, 2, 0), consume(1500, 3, "1:2"), ack(1600, 3, 1),
        end("kl"),
    ],
    "too late after the one in front of it": [
        consume(0, 1, "0 1", "z"), consume(1500, 2, "1:2", suspect=True), ack(1600, 2, 1),
        consume(3600, 3, "0:2", suspect=True), ack(3700, 3, 0), end("kl"),
    ],
    "too late after an unrecorded lease in front of it": [
        consume(0, 1, "0 1", "z"), lost_consume(1100), consume(1300, 3, "1:3", suspect=True), ack(1400, 3, 1),
        consume(3600, 4, "0:2", suspect=True), ack(3700, 4, 0), end("kl"),
    ],
    "too late after its back-off": [
        consume(0, 1, "0", "z", suspect=True), consume(3300, 2, "0:2:1"), ack(3310, 2, 0), end(),
    ],
}  # fmt: skip

VALID: dict[str, list[Rows]] = {
    "it comes again": [
        consume(0, 1, "0 1", "z"), consume(2900, 2, "0:2"), ack(3000, 2, 0), consume(1000, 3, "1:2"), ack(1600, 3, 1),
        end("kl"),
    ],
    "one after the other": [
        consume(0, 1, "0 1 2", "z"), consume(1500, 2, "1:2", suspect=True), ack(2900, 2, 1),
        consume(2900, 3, "2:2", suspect=True), ack(4800, 3, 2), consume(4800, 4, "0:2", suspect=True), ack(4900, 4, 0),
        end("klm"),
    ],
    "in sequence after an unrecorded lease": [
        consume(0, 1, "0 1", "z"), lost_consume(1500), consume(3400, 3, "0:2", suspect=True), ack(3500, 3, 0),
        consume(3600, 4, "1:3", suspect=True), ack(3700, 4, 1), end("kl"),
    ],
    "an owner that lives": [consume(0, 1, "0"), consume(3100, 2, "0:2", "b"), ack(3200, 2, 0, owner="b"), end()],
    "after an extend": [
        consume(0, 1, "0", "z"), extend(900, 1, 1900, owner="z"), consume(3800, 2, "0:2"), ack(3900, 2, 0), end(),
    ],
    "after its back-off": [
        consume(0, 1, "0", "z", suspect=True), consume(3200, 2, "0:2:1"), ack(3210, 2, 0), end(),
    ],
    "behind another of its key": [
        consume(0, 1, "0 1", "z"), consume(1500, 2, "0:2"), ack(4000, 2, 0), consume(4001, 3, "1:2"), ack(4010, 3, 1),
        end("kk"),
    ],
    "what it said before it died": [
        consume(0, 1, "0", "z"), nack(10, 1, 0, owner="z", delay_ms=9000, **LOST), consume(9100, 2, "0:2:1"),
        ack(9200, 2, 0), end(),
    ],
    "another owner may have held it in between": [
        consume(0, 1, "0", "z"), lost_consume(1500), consume(3100, 2, "0:3"), ack(3200, 2, 0), end(),
    ],
    "another owner may hold it": [consume(0, 1, "0", "z"), lost_consume(1500), end()],
    "it died with its owner": [consume(0, 1, "0", "z", suspect=True), end(letters=[letter(0, 2, 1)])],
    "it expired": [consume(0, 1, "0", "z"), end(expired=1, acked=0)],
    "before a seek": [consume(0, 1, "0", "z"), seek(10), end(start=1, epoch=1)],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_l5_is_broken(name: str) -> None:
    (wrong,) = found("L5", BROKEN[name])
    assert wrong.place == ("t", 0, 0) and "the dead owner z" in wrong.what


@pytest.mark.parametrize("name", VALID)
def test_l5_nearly_is(name: str) -> None:
    assert found("L5", VALID[name]) == []


def test_l5_of_nothing() -> None:
    assert found("L5", []) == []


def test_l5_the_run_may_allow_more() -> None:
    assert found("L5", LATE)
    assert found("L5", LATE, targets={"L5_ms": 2500}) == []


@pytest.mark.parametrize(("ended", "wrong"), [(1550, 1), (1700, 0)])
def test_l5_the_clock_stands_while_a_fault_lasts(ended: int, wrong: int) -> None:
    faults = (FaultInterval(kind="postgres", began_ns=1500 * MS, ended_ns=ended * MS),)
    assert len(found("L5", LATE, faults=faults)) == wrong


def test_l5_a_fault_that_was_over_when_it_was_due_does_not_count() -> None:
    faults = (FaultInterval(kind="postgres", began_ns=1000 * MS, ended_ns=1400 * MS),)
    assert len(found("L5", BROKEN["too late after the one in front of it"], faults=faults)) == 1


@pytest.mark.parametrize(
    ("name", "seconds"), [("it comes again", 1.9), ("one after the other", 1.9), ("an owner that lives", None)]
)
def test_l5_the_longest_that_one_waited(name: str, seconds: float | None) -> None:
    assert l5.worst(tables(*VALID[name]), run()) == seconds


def test_l5_the_longest_of_all_groups_is_told() -> None:
    tally = ViolationTally(worst=1.0)
    for worst in (None, 2.0, 1.5):
        tally.add(ViolationTally(worst=worst))
    assert tally.judgement(()).worst == 2.0
