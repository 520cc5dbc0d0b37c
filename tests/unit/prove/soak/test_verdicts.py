"""The verdicts of a soak: growth, bounds, and steady latencies."""

from __future__ import annotations

import numpy as np
import pytest

from prove.soak.gauges import GaugeReading
from prove.soak.latency import Latency, Waits
from prove.soak.verdicts import FEW_DEAD, bounded, memory, steady, tiered, undisturbed, verdicts

MIB = 2**20


def taken(at: float, *, memory: float = 100.0, dead: int = 0, store: int = 0, lag: int = 0) -> GaugeReading:
    return GaugeReading(
        at=at, memory={"server0": int(memory * MIB)}, dead=dead, dead_by_table={}, database=0, wal=0, store=store,
        lag={"billing": lag}, published=0,
    )  # fmt: skip


def waits(early: float, late: float, *, seconds: int = 1200) -> Waits:
    at = np.arange(seconds, dtype=np.float32)
    return Waits(at=at, took=np.where(at < seconds / 2, early, late).astype(np.float32))


@pytest.mark.parametrize(("end", "holds"), [(109.0, True), (111.0, False)])
def test_memory_is_compared_with_minute_ten_of_an_hour(end: float, holds: bool) -> None:
    rows = [taken(at, memory=50.0 if at < 600 else 100.0 if at < 3480 else end) for at in range(0, 3601, 10)]
    assert memory(rows).holds is holds


def test_a_shorter_run_is_judged_by_the_same_shares_of_it() -> None:
    rows = [taken(at, memory=50.0 if at < 100 else 100.0) for at in range(0, 601, 10)]
    assert memory(rows).holds
    assert not memory([*rows[:-1], taken(600, memory=130.0)]).holds


def test_what_grows_on_and_on_is_not_bounded() -> None:
    saw = [taken(at, dead=20_000 + 9_000 * (at // 10 % 3)) for at in range(0, 1201, 10)]
    grows = [taken(at, dead=100 * at) for at in range(0, 1201, 10)]
    assert bounded("dead", saw, lambda each: each.dead).holds
    assert not bounded("dead", grows, lambda each: each.dead).holds


def test_a_little_is_bounded_whatever_it_was_before() -> None:
    rows = [taken(at, dead=0 if at < 600 else FEW_DEAD) for at in range(0, 1201, 10)]
    assert bounded("dead", rows, lambda each: each.dead, least=FEW_DEAD).holds
    assert not bounded("dead", rows, lambda each: each.dead, least=FEW_DEAD - 1).holds


@pytest.mark.parametrize(("late", "holds"), [(14.0, True), (16.0, False)])
def test_waits_stay_as_they_were_after_the_warm_up(late: float, holds: bool) -> None:
    found = waits(10.0, late)
    found.took[:90] = 1000.0
    assert steady("p99", found, 1200.0).holds is holds


def test_nothing_in_the_end_is_not_steady() -> None:
    found = waits(10.0, 10.0)
    assert not steady("p99", Waits(at=found.at[:900], took=found.took[:900]), 1200.0).holds


def test_tiering_has_to_go_on() -> None:
    assert tiered([taken(at, store=at) for at in range(0, 1201, 10)]).holds
    assert not tiered([taken(at, store=min(at, 600)) for at in range(0, 1201, 10)]).holds


def test_all_is_judged_and_each_group_by_itself() -> None:
    rows = [taken(at, lag=at if at > 600 else 0, store=at) for at in range(0, 1201, 10)]
    latency = Latency(publish=waits(1.0, 1.0), delivery=waits(1.0, 1.0))
    broken = [each.name for each in verdicts(rows, latency, rate=100.0) if not each.holds]
    assert broken == ["lag of billing"]
    assert all(each.holds for each in verdicts(rows, latency, rate=600.0))


def test_an_hour_is_an_hour_of_the_machine() -> None:
    assert undisturbed(3600.0, 3600.0).holds and not undisturbed(3500.0, 3600.0).holds
