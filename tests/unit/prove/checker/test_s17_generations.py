"""S17: one assigned member per partition and generation, and old generations are refused."""

from __future__ import annotations

import pytest

from lakelog.model.group import GroupKind
from prove.checker import s17_generations as s17
from prove.history.tables import MemberEvent
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.member_rows import MS, assigned, commit, join, member, revoked
from tests.unit.prove.checker.membership_scenario import MembershipScenario
from tests.unit.prove.checker.rows import FAIL, INFO, Rows

BROKEN: dict[str, Rows] = {
    "two own a partition": join("a", 10, 1, 0, 1)
    + join("b", 20, 2)
    + assigned("a", 30, 2, 0, 1)
    + assigned("b", 40, 2, 1),
    "an old commit after a newer one": commit("b", 10, 5) + commit("a", 20, 4),
    "an old commit in another's time": assigned("b", 10, 5, 0) + commit("a", 3000, 4) + assigned("b", 9000, 5, 0),
    "an old consume": join("a", 10, 4, 0) + join("b", 20, 5) + member(MemberEvent.CONSUME, "a", 3000, 4),
}
KEPT: dict[str, Rows] = {
    "a partition moves": join("a", 10, 1, 0) + revoked("a", 20, 2, 0) + assigned("b", 30, 3, 0),
    "told twice": assigned("a", 10, 1, 0) + assigned("a", 20, 1, 0),
    "an old commit that is refused": commit("b", 10, 5) + commit("a", 20, 4, outcome=FAIL),
    "an old commit of unknown outcome": commit("b", 10, 5) + commit("a", 20, 4, outcome=INFO, completed_ns=0),
    "an old commit after an unknown newer one": commit("b", 10, 5, outcome=INFO) + commit("a", 20, 4),
    "an old commit at the same time": commit("b", 10, 5) + commit("a", 11, 4),
    "an old commit elsewhere": commit("b", 10, 5, 1) + commit("a", 20, 4, 0),
    "an old commit before all servers know": assigned("b", 10, 5, 0) + commit("a", 900, 4) + assigned("b", 9000, 5, 0),
    "an old commit when it may be its own again": assigned("b", 10, 5, 0) + commit("a", 3000, 4),
    "the time of the request is unknown": assigned("b", 10, 5, 0)
    + commit("a", 3000, 4)
    + assigned("b", 9000, 5, 0, invoked_ns=9001 * MS),
    "an old consume before all servers know": join("b", 20, 5) + member(MemberEvent.CONSUME, "a", 900, 4),
    "an old consume that is refused": join("b", 20, 5) + member(MemberEvent.CONSUME, "a", 3000, 4, outcome=FAIL),
}


@pytest.mark.parametrize("case", BROKEN)
def test_s17_catches(case: str) -> None:
    assert_broken(s17, BROKEN[case])


@pytest.mark.parametrize("case", KEPT)
def test_s17_lets_pass(case: str) -> None:
    assert_kept(s17, KEPT[case])


def test_s17_says_who_owns_what() -> None:
    found = assert_broken(s17, BROKEN["two own a partition"])
    assert str(found[0]) == "S17: a and b both own t/1 in generation 2 [a-30, b-40]"


@pytest.mark.parametrize("kind", [GroupKind.CURSOR, GroupKind.LEASE])
@pytest.mark.parametrize("seed", range(5))
def test_s17_finds_nothing_in_what_the_coordinator_decides(seed: int, kind: GroupKind) -> None:
    assert_kept(s17, MembershipScenario(seed, kind).go(300, 400))


def test_s17_without_a_history() -> None:
    assert_nothing_said_of_nothing(s17)
