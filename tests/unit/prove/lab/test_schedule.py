"""The schedule of faults: from the seed alone, all kinds in turn, a quarter of the time quiet."""

from __future__ import annotations

from collections import Counter

import pytest

from prove.lab.command import _possible
from prove.lab.faults import KINDS
from prove.lab.schedule import DRILL, drill_seconds, in_turn, quiet, schedule
from prove.lab.sizes import SIZES, cut_to

NAMES = list(KINDS)


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    first = schedule(1, NAMES, faults=60, seconds=200)
    assert first == schedule(1, NAMES, faults=60, seconds=200)
    assert first != schedule(2, NAMES, faults=60, seconds=200)


@pytest.mark.parametrize("seconds", [20.0, 100.0, 200.0, 1000.0])
def test_faults_come_in_order_and_never_begin_while_it_is_quiet(seconds: float) -> None:
    entries = schedule(3, NAMES, faults=40, seconds=seconds)
    drilled = drill_seconds(NAMES, seconds)
    times = [entry.at for entry in entries]
    assert len(entries) == 40 and times == sorted(times) and times[0] >= 0 and times[-1] < seconds
    for begin, end in quiet(seconds - drilled):
        assert not [at for at in times if begin + drilled < at < end + drilled]


def test_a_quarter_is_quiet_and_long_runs_have_thirty_quiet_seconds() -> None:
    intervals = quiet(1280)
    assert sum(end - begin for begin, end in intervals) == pytest.approx(1280 / 4)
    assert max(end - begin for begin, end in intervals) > 30


def test_all_kinds_come_before_any_comes_again() -> None:
    kinds = Counter(entry.kind for entry in schedule(4, NAMES, faults=2 * len(NAMES), seconds=100))
    assert set(kinds.values()) == {2}


def test_faults_in_turn_are_those_that_are_named_one_act_after_the_other() -> None:
    acts = [("link down",), ("link down", "slow link"), ("server killed",)]
    entries = in_turn(1, acts, last=[("held xmin",)], seconds=100)
    assert sorted(entry.kind for entry in entries) == [
        "held xmin",
        "link down",
        "link down",
        "server killed",
        "slow link",
    ]
    assert sorted({entry.at for entry in entries}) == [15, 30, 45, 60]
    assert entries[-1].kind == "held xmin"
    together = {entry.kind: entry.at for entry in entries if entry.kind != "link down"}
    assert together["slow link"] in [entry.at for entry in entries if entry.kind == "link down"]
    orders = {tuple(entry.kind for entry in in_turn(seed, acts, seconds=100)) for seed in range(50)}
    assert len(orders) == 6
    assert in_turn(1, [], seconds=100) == []


def test_a_long_run_begins_with_a_server_killed_every_ten_seconds() -> None:
    """L3 applies to this part."""
    entries = schedule(5, NAMES, faults=30, seconds=200)
    assert [(entry.kind, entry.at) for entry in entries[:3]] == [(DRILL, 2.0), (DRILL, 12.0), (DRILL, 22.0)]
    assert entries[3].at > drill_seconds(NAMES, 200) > 30
    assert drill_seconds(["link down"], 200) == drill_seconds(NAMES, 60) == 0


def test_sizes_are_what_is_asked_for_and_are_cut_in_proportion() -> None:
    ci = SIZES["ci"]
    assert (ci.messages, ci.faults, ci.kinds, ci.seeds, ci.minutes) == (300_000, 40, 12, 20_000, 8)
    assert (SIZES["nightly"].messages, SIZES["nightly"].faults) == (20_000_000, 1_000)
    assert (SIZES["release"].messages, SIZES["release"].faults) == (100_000_000, 10_000)
    half = cut_to(ci, 4)
    assert (half.messages, half.faults, half.seeds, half.load_seconds) == (150_000, 20, 10_000, 60)
    assert cut_to(ci, 60) == ci
    assert cut_to(ci, 0.1).faults >= 1


def test_the_hardest_faults_are_in_long_runs_only() -> None:
    short, long = set(_possible(SIZES["ci"])), set(_possible(SIZES["nightly"]))
    assert long == set(KINDS) and "disk fails" in long - short
    assert all(KINDS[name].is_hard or KINDS[name].drivers > 1 for name in long - short)
