"""A fault counts only if the history shows it, in its time, in calls of clients that it could affect."""

from __future__ import annotations

from typing import Any

from prove.history.tables import CallOutcome, SampleKind, Tables, columns, text_id
from prove.lab.effects import Effects
from prove.lab.fault_runner import InjectedFault
from prove.lab.faults.fault import Symptom

SECOND = 1_000_000_000
ROLES = {"producer": ["producer-1"], "billing": ["billing-1", "billing-2"], "driver": ["driver-1", "driver-2"]}


def happened(kind: str, *victims: str) -> InjectedFault:
    return InjectedFault(kind=kind, about="", began_ns=10 * SECOND, ended_ns=12 * SECOND, victims=frozenset(victims))


def effects(**tables: list[dict[str, Any]]) -> Effects:
    names = ["billing-1", "billing-1-thief"]
    found = Tables(by_name={name: columns(name, rows) for name, rows in tables.items()})
    return Effects(found, ROLES, {text_id(name): name for name in names})


def attempt(process: str, at: float, outcome: CallOutcome, **more: Any) -> dict[str, Any]:
    time = int(at * SECOND)
    return {"process": text_id(process), "invoked_ns": time, "completed_ns": time, "outcome": int(outcome), **more}


def delivery(process: str, at: float, offset: int, **more: Any) -> dict[str, Any]:
    return {**attempt(process, at, CallOutcome.OK), "topic": 1, "group": 2, "partition": 0, "offset": offset, **more}


def test_an_unknown_outcome_in_its_time_counts() -> None:
    found = effects(attempt=[attempt("producer-1", 11, CallOutcome.INFO)]).of(happened("server killed"))
    assert found.counts and found.signs == {Symptom.UNKNOWN: 1}


def test_one_long_before_or_after_does_not() -> None:
    rows = [attempt("producer-1", at, CallOutcome.INFO) for at in (9.9, 15.5)]
    assert not effects(attempt=rows).of(happened("server killed")).counts


def test_a_call_that_never_ended_counts_where_it_began() -> None:
    row = {**attempt("producer-1", 11, CallOutcome.INFO), "completed_ns": 0}
    assert effects(attempt=[row]).of(happened("server killed")).counts


def test_somebody_else_s_unknown_outcome_is_not_the_victim_s() -> None:
    other = effects(attempt=[attempt("producer-2", 11, CallOutcome.INFO)])
    assert not other.of(happened("producer killed after sending", "producer-1")).counts
    # Its last call began before the kill.
    mine = effects(attempt=[{**attempt("producer-1", 9, CallOutcome.INFO), "completed_ns": 0}])
    assert mine.of(happened("producer killed after sending", "producer-1")).counts


def test_a_client_that_the_fault_cannot_touch_shows_nothing() -> None:
    rows = [attempt("billing-1", 11, CallOutcome.FAIL, group=2)]
    assert not effects(answer=rows).of(happened("members come and go")).counts


def test_redelivery_is_of_what_the_victim_had() -> None:
    given = [delivery("billing-1", 9, 5), delivery("billing-2", 20, 5, suspect=True)]
    assert effects(delivery=given).of(happened("worker killed", "billing-1")).signs == {Symptom.REDELIVERED: 1}
    others = [delivery("billing-1", 9, 5), delivery("billing-2", 20, 6, suspect=True)]
    assert not effects(delivery=others).of(happened("worker killed", "billing-1")).counts


def test_a_thief_s_refusal_is_nobody_s_effect() -> None:
    row = attempt("billing-1", 13, CallOutcome.FAIL, owner=text_id("billing-1-thief"))
    assert not effects(answer=[row]).of(happened("worker stopped, then answers", "billing-1")).counts
    honest = attempt("billing-1", 13, CallOutcome.FAIL, owner=text_id("billing-1"))
    assert effects(answer=[honest]).of(happened("worker stopped, then answers", "billing-1")).counts


def test_what_must_not_be_noticed_never_counts() -> None:
    found = effects(attempt=[attempt("producer-1", 11, CallOutcome.INFO)]).of(happened("held xmin"))
    assert not found.counts and not found.signs


def sample(process: str, kind: SampleKind, at: float, **more: Any) -> dict[str, Any]:
    return {"process": text_id(process), "kind": int(kind), "at_ns": int(at * SECOND), **more}


def test_a_driver_in_the_place_of_a_killed_one_counts_and_the_first_one_does_not() -> None:
    killed = happened("tiering killed at a point", "driver-1")
    late = {"told": 1, "group": text_id("driver-1")}
    assert effects(sample=[sample("driver-2", SampleKind.DRIVER, 230, **late)]).of(killed).signs == {
        Symptom.RESTARTED: 1
    }
    assert not effects(sample=[sample("driver-2", SampleKind.DRIVER, 30, told=0)]).of(killed).counts
    assert not effects(sample=[sample("driver-2", SampleKind.DRIVER, 9, told=1)]).of(killed).counts
    other = {"told": 1, "group": text_id("driver-0")}
    assert not effects(sample=[sample("driver-2", SampleKind.DRIVER, 30, **other)]).of(killed).counts


def test_a_pass_that_failed_or_found_segments_of_another_counts() -> None:
    rivals = happened("two drivers on one range")
    assert effects(sample=[sample("driver-1", SampleKind.TIERING, 11, told=2, truth=5)]).of(rivals).counts
    assert effects(sample=[sample("driver-1", SampleKind.TIERING, 11, stale=True)]).of(rivals).counts
    assert not effects(sample=[sample("driver-1", SampleKind.TIERING, 11, told=0, truth=5)]).of(rivals).counts


def test_a_hostile_tenant_counts_if_a_limit_ended_a_part_of_it() -> None:
    def limited(told: int) -> Effects:
        row = {"kind": int(SampleKind.LIMITED), "process": text_id("hostile-1"), "told": told, "truth": 100}
        return effects(sample=[row])

    assert limited(7).of(happened("hostile tenant", "hostile-1")).signs == {Symptom.LIMITED: 7}
    assert not limited(0).of(happened("hostile tenant", "hostile-1")).counts
    assert not limited(7).of(happened("hostile tenant", "hostile-2")).counts
