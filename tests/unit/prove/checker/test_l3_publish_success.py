"""L3: publishes succeed within 5 s of their first attempt."""

from __future__ import annotations

from typing import Any

import pytest

from prove.checker import l3_publish_success as l3
from tests.unit.prove.checker.cases import assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import FAIL, INFO, Rows, number, row, run

MS = 1_000_000


def attempt(counter: int, began: int, ended: int, **more: Any) -> Rows:
    """Return an attempt from one millisecond to another."""
    when = {"invoked_ns": began * MS, "completed_ns": ended * MS}
    return row("attempt", **{"process": "a", "topic": "t", "counter": counter, **when, **more})


GOOD = attempt(1, 0, 10) + attempt(2, 10, 20)
LATE: dict[str, Rows] = {
    "a long call": attempt(3, 100, 5101),
    "the second try": attempt(3, 100, 5000, identity="i", outcome=INFO) + attempt(4, 5000, 5200, identity="i"),
    "never": attempt(3, 100, 200, outcome=INFO),
    "never came back": attempt(3, 100, 0, outcome=INFO),
    "other topics have other identities": attempt(3, 100, 0, identity="i", outcome=INFO)
    + attempt(4, 100, 110, identity="i", topic="u"),
    "refused in the end": attempt(3, 100, 0, identity="i", outcome=INFO)
    + attempt(4, 200, 210, identity="i", outcome=FAIL),
}
IN_TIME: dict[str, Rows] = {
    "five seconds": attempt(3, 100, 5100),
    "the second try": attempt(3, 100, 2000, identity="i", outcome=INFO) + attempt(4, 2000, 2200, identity="i"),
    "refused for good": attempt(3, 100, 110, outcome=FAIL),
    "its producer was killed": attempt(3, 100, 0, outcome=INFO, process="k"),
    "retried elsewhere": attempt(3, 100, 0, identity="i", outcome=INFO, process="k")
    + attempt(4, 900, 910, identity="i"),
}


@pytest.mark.parametrize("case", LATE)
def test_l3_catches(case: str) -> None:
    found = l3.check((GOOD + LATE[case]).tables(), run(targets={"L3": 0.999}))
    assert [each.calls for each in found] == [(), ("a-3",)]


@pytest.mark.parametrize("case", IN_TIME)
def test_l3_lets_pass(case: str) -> None:
    told = run(targets={"L3": 0.999}, crashed=frozenset({number("k")}))
    assert l3.check((GOOD + IN_TIME[case]).tables(), told) == []


def test_l3_allows_a_share() -> None:
    tables = (GOOD + attempt(3, 0, 1) + LATE["never"]).tables()
    assert l3.figure(tables, run()) == 0.75
    assert l3.check(tables, run(targets={"L3": 0.75})) == []
    assert l3.check(tables, run(targets={"L3": 0.76})) != []


def test_l3_is_judged_only_where_the_run_says_so() -> None:
    assert l3.check(LATE["never"].tables(), run()) == []


def test_l3_without_a_history() -> None:
    assert_nothing_said_of_nothing(l3)
    assert l3.check(Rows().tables(), run(targets={"L3": 0.999})) == []
    assert l3.figure(Rows().tables(), run()) is None
