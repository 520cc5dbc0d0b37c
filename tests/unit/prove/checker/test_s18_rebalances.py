"""S18: rebalances are few and short, and affect only the members concerned."""

from __future__ import annotations

import pytest

from lakelog.model.group import GroupKind
from prove.checker import s18_rebalances as s18
from prove.checker.invariant import FaultInterval
from prove.history.tables import SampleKind
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.member_rows import MS, assigned, commit, join, leave, poll, revoked
from tests.unit.prove.checker.membership_scenario import MembershipScenario
from tests.unit.prove.checker.rows import Rows, row, run

BEFORE = join("a", 0, 1, 0, 1, 2) + join("b", 100, 2) + revoked("a", 110, 2, 2) + assigned("b", 120, 3, 2)
AFTER = assigned("a", 60_000, 4, 0) + assigned("b", 60_000, 4, 2)
"""Both members are present, long after."""
JOINED = BEFORE + join("c", 20_000, 4) + AFTER + commit("c", 60_000, 5, 1)
LEFT = BEFORE + join("c", 200, 3) + leave("c", 20_000) + AFTER


def rebalances(told: int, at: int) -> Rows:
    return row("sample", kind=SampleKind.REBALANCES, topic="t", group="g", at_ns=at, told=told)


BROKEN: dict[str, Rows] = {
    "a storm": join("a", 0, 1, 0) + assigned("a", 10, 20, 0),
    "a storm, as the group says": join("a", 0, 1, 0) + rebalances(0, 1) + rebalances(5, 2),
    "a waiting member learns of it late": JOINED + poll("a", 15_000, 24_000) + revoked("a", 24_010, 4, 1),
    "it moves to another member": JOINED + revoked("a", 20_010, 4, 1) + assigned("b", 20_020, 5, 1),
    "a leave takes from another": LEFT + revoked("a", 20_010, 4, 1),
}
KEPT: dict[str, Rows] = {
    "two rebalances of one change": join("a", 0, 1, 0) + rebalances(0, 1) + rebalances(4, 2) + join("b", 5, 3),
    "each who gives up makes a generation": BEFORE,
    "a waiting member learns of it in time": JOINED + poll("a", 15_000, 20_050) + revoked("a", 20_060, 4, 1),
    "a working member learns of it when it asks": JOINED + poll("a", 15_000, 19_000) + revoked("a", 24_010, 4, 1),
    "who works after its poll, too": JOINED + poll("a", 15_000, 20_500) + revoked("a", 24_010, 4, 1),
    "it moves to who joined": JOINED + revoked("a", 20_010, 4, 1) + assigned("c", 20_020, 5, 1),
    "who left gave it": LEFT + assigned("a", 20_010, 4, 1),
    "who joined is not seen again": BEFORE
    + join("c", 20_000, 4)
    + AFTER
    + revoked("a", 20_010, 4, 1)
    + assigned("b", 20_020, 5, 1),
    "another leaves, too": LEFT + leave("d", 25_000) + leave("b", 20_500) + revoked("a", 20_600, 4, 1),
    "another is not seen again": LEFT + join("d", 300, 3) + revoked("a", 20_600, 4, 1),
    "another joins again": LEFT + join("d", 300, 3) + join("d", 55_000, 6) + revoked("a", 20_600, 4, 1),
}


@pytest.mark.parametrize("case", BROKEN)
def test_s18_catches(case: str) -> None:
    assert_broken(s18, BROKEN[case])


@pytest.mark.parametrize("case", KEPT)
def test_s18_lets_pass(case: str) -> None:
    assert_kept(s18, KEPT[case])


@pytest.mark.parametrize("case", ["a waiting member learns of it late", "it moves to another member"])
def test_s18_judges_no_change_during_a_fault(case: str) -> None:
    fault = FaultInterval(kind="kill", began_ns=21_000 * MS, ended_ns=22_000 * MS)
    assert s18.check(BROKEN[case].tables(), run()) != []
    assert s18.check(BROKEN[case].tables(), run(faults=(fault,))) == []


def test_s18_has_more_time_where_the_run_says_so() -> None:
    slow = BROKEN["a waiting member learns of it late"].tables()
    assert s18.check(slow, run(targets={"S18": 15.0})) == []


@pytest.mark.parametrize("kind", [GroupKind.CURSOR, GroupKind.LEASE])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("steps", "pause_ms"), [(300, 20), (80, 20_000)])
def test_s18_finds_nothing_in_what_the_coordinator_decides(
    seed: int, kind: GroupKind, steps: int, pause_ms: int
) -> None:
    assert_kept(s18, MembershipScenario(seed, kind).go(steps, pause_ms))


def test_s18_without_a_history() -> None:
    assert_nothing_said_of_nothing(s18)
