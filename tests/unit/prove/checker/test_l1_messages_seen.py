"""L1: every message has been delivered 60 s after the last fault."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.model.group import Order
from prove.checker import l1_messages_seen as l1
from prove.checker.invariant import GroupRules, RunInfo
from prove.history.tables import OwnerVerb
from tests.unit.prove.checker.cases import assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import INFO, Rows, final, keyed, number, row, run

S = 1_000_000_000
PLACE = {"topic": "t", "partition": 0, "group": "g"}


def given(at: int, *offsets: int, **more: Any) -> Rows:
    """Return a delivery at that second."""
    told = {"process": "w", "counter": at, "invoked_ns": at * S, "completed_ns": at * S + 1000, "lease_ms": 30_000}
    return sum((row("delivery", **{**PLACE, **told, "offset": each, **more}) for each in offsets), Rows())


def call(verb: OwnerVerb, at: int, **more: Any) -> Rows:
    told = {"process": "w", "counter": at, "invoked_ns": at * S, "completed_ns": at * S + 1000, "verb": verb}
    return row("call", **{**PLACE, **told, **more})


def progress(**more: Any) -> Rows:
    told = {"process": "s", "counter": 1, "invoked_ns": S, "completed_ns": 300 * S, "final": 1, "high_watermark": 3}
    return row("progress", **{**PLACE, **told, **more})


def healed(**more: Any) -> RunInfo:
    return run(**{"load_ns": (0, 90 * S), "healed_ns": 100 * S, "drained_ns": 300 * S, **more})


LOG = final(keyed("a", "k"), keyed("b", "l"), keyed("c", "k"))
EARLY = LOG + given(10, 0, 1) + progress()
BROKEN: dict[str, Rows] = {
    "late": EARLY + given(161, 2),
    "never": EARLY,
    "never, and more than were filtered": LOG + given(10, 0) + progress(filtered=1),
    "a lost response has ended by then": EARLY + given(161, 2) + call(OwnerVerb.CONSUME, 110, outcome=INFO),
    "its key was busy long ago": EARLY + given(95, 0, number=2) + given(161, 2),
    "another key was busy": EARLY + given(110, 1, number=2) + given(161, 2),
}
KEPT: dict[str, Rows] = {
    "in time": EARLY + given(159, 2),
    "filtered": EARLY
    + row("progress", **{**PLACE, "final": 1, "filtered": 1, "invoked_ns": S, "completed_ns": 400 * S}),
    "before the group's start": LOG + given(10, 2) + progress(start=2),
    "dead by unrecorded deliveries": EARLY + row("dead", **PLACE, offset=2),
    "a lost answer": EARLY + given(161, 2) + call(OwnerVerb.CONSUME, 120, outcome=INFO, completed_ns=0),
    "its key was busy": EARLY + given(110, 0, number=2) + given(161, 2),
    "the group was moved": EARLY + given(161, 2) + call(OwnerVerb.SEEK, 105),
    "the group was made late": LOG + given(150, 0, 2) + given(161, 1),
    "no consumer asks": LOG + progress(),
}


@pytest.mark.parametrize("case", BROKEN)
def test_l1_catches(case: str) -> None:
    found = l1.check(BROKEN[case].tables(), healed())
    assert [each.invariant for each in found] == ["L1"]


@pytest.mark.parametrize("case", KEPT)
def test_l1_lets_pass(case: str) -> None:
    assert l1.check(KEPT[case].tables(), healed()) == []


def test_l1_counts_from_the_end_of_load_where_that_is_later() -> None:
    late = BROKEN["late"].tables()
    assert l1.check(late, healed(load_ns=(0, 110 * S))) == []
    assert l1.check(late, healed(targets={"L1": 90.0})) == []


def test_l1_knows_that_partition_order_holds_all_up() -> None:
    held_up = BROKEN["another key was busy"].tables()
    rules = {(number("t"), number("g")): GroupRules(order=Order.PARTITION)}
    assert l1.check(held_up, healed(rules=rules)) == []


def test_l1_is_not_judged_where_nobody_waited_so_long() -> None:
    broken_off = (LOG + given(10, 0, 1)).tables()
    assert l1.check(broken_off, healed(drained_ns=120 * S)) == []
    assert l1.check(broken_off, healed()) != []
    assert l1.check(broken_off, run()) == []


def test_l1_says_when_the_last_message_was_seen() -> None:
    assert l1.figure(KEPT["in time"].tables(), healed()) == pytest.approx(59, abs=0.01)


def test_l1_without_a_history() -> None:
    assert_nothing_said_of_nothing(l1)
    assert l1.figure(Rows().tables(), healed()) is None
