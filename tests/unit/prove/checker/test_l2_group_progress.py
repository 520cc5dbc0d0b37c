"""L2: each group progresses in every quiet 30 s."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.model.group import Order
from prove.checker import l2_group_progress as l2
from prove.checker.invariant import FaultInterval, GroupRules, RunInfo
from tests.unit.prove.checker.cases import assert_nothing_said_of_nothing
from tests.unit.prove.checker.member_rows import commit, poll
from tests.unit.prove.checker.rows import INFO, Rows, number, row, run

S = 1_000_000_000


def progress(at: int, frontier: int, partition: int = 0, **more: Any) -> Rows:
    """Return a sample at that second, of 100 messages."""
    told = {"topic": "t", "group": "g", "process": "s", "counter": at, "partition": partition}
    when = {"invoked_ns": at * S, "completed_ns": at * S + 1000}
    figures = {"frontier": frontier, "committed": frontier, "high_watermark": 100}
    return row("progress", **{**told, **when, **figures, **more})


def samples(first: int, last: int, frontier: int, partition: int = 0, **more: Any) -> Rows:
    """Return equal samples, one per second."""
    return sum((progress(at, frontier, partition, **more) for at in range(first, last + 1)), Rows())


def load(*faults: tuple[int, int], **more: Any) -> RunInfo:
    found = tuple(FaultInterval(kind="kill", began_ns=began * S, ended_ns=ended * S) for began, ended in faults)
    return run(load_ns=(1 * S, 200 * S), faults=found, **more)


ASKS = poll("w", 0, 100_000)
STUCK = samples(10, 50, 7)
BROKEN: dict[str, tuple[Rows, RunInfo]] = {
    "stuck": (STUCK + ASKS, load()),
    "stuck in both": (STUCK + samples(10, 50, 100, 1) + ASKS, load()),
    "stuck after a fault": (STUCK + ASKS, load((1, 5))),
    "stuck while all waits for nothing": (samples(10, 50, 7, waiting=1) + ASKS, load()),
    "who reads with a cursor": (STUCK + commit("m", 12_000, 1), load()),
}
KEPT: dict[str, tuple[Rows, RunInfo]] = {
    "it goes on": (samples(10, 30, 7) + samples(31, 50, 8) + ASKS, load()),
    "it goes on elsewhere": (STUCK + samples(10, 30, 7, 1) + samples(31, 50, 8, 1) + ASKS, load()),
    "another partition was not sampled": (STUCK + progress(5, 1, 1) + progress(55, 9, 1) + ASKS, load()),
    "another partition was not sampled since it moved": (
        progress(5, 1, 1) + progress(10, 6) + samples(11, 50, 7) + progress(55, 9, 1) + ASKS,
        load(),
    ),
    "thirty seconds": (samples(10, 40, 7) + ASKS, load()),
    "nothing to do": (samples(10, 50, 100) + ASKS, load()),
    "no consumer asks": (STUCK, load()),
    "a consumer asks late": (STUCK + poll("w", 30_000, 90_000), load()),
    "a consumer asks for another topic": (STUCK + poll("w", 0, 90_000, topic="u"), load()),
    "a fault between": (STUCK + ASKS, load((20, 21))),
    "settling": (STUCK + ASKS, load((1, 12))),
    "no load": (STUCK + ASKS, run()),
    "its key waits": (samples(10, 50, 7, waiting=1, skipped=3) + ASKS, load()),
    "its partition waits": (
        samples(10, 50, 7, waiting=1) + ASKS,
        load(rules={(number("t"), number("g")): GroupRules(order=Order.PARTITION)}),
    ),
    "samples of unknown outcome": (samples(10, 50, 7, outcome=INFO) + ASKS, load()),
}


@pytest.mark.parametrize("case", BROKEN)
def test_l2_catches(case: str) -> None:
    history, told = BROKEN[case]
    (found,) = l2.check(history.tables(), told)
    assert "g did not progress for " in str(found) and "in t/0 it had considered what is before 7 of 100" in str(found)


@pytest.mark.parametrize("case", KEPT)
def test_l2_lets_pass(case: str) -> None:
    history, told = KEPT[case]
    assert l2.check(history.tables(), told) == []


def test_l2_without_a_history() -> None:
    assert_nothing_said_of_nothing(l2)
