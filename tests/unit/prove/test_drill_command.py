"""The drill: its schedule, and the time until all partitions are served after PostgreSQL returns."""

from __future__ import annotations

from typing import Any

import pytest

from prove.checker.invariant import FaultInterval, RunInfo
from prove.checker.judgement import CheckVerdict
from prove.drill_command import RESTART, PostgresReturn, _figures, entries, judge_returns, returned
from prove.history.tables import CallOutcome, Tables, columns
from prove.lab.schedule import DRILL

SECOND = 1_000_000_000
BACK = FaultInterval(kind=RESTART, about="cell1", began_ns=8 * SECOND, ended_ns=10 * SECOND)
OTHER = FaultInterval(kind=DRILL, about="server0", began_ns=1 * SECOND, ended_ns=2 * SECOND)
RUN = RunInfo(faults=(OTHER, BACK), load_ns=(0, 100 * SECOND))


def call(
    partition: int, began: float, ended: float, outcome: CallOutcome = CallOutcome.OK, **more: Any
) -> dict[str, Any]:
    return {
        "partition": partition, "invoked_ns": int(began * SECOND), "completed_ns": int(ended * SECOND),
        "outcome": int(outcome), "topic": 1, **more,
    }  # fmt: skip


def tables(attempts: list[dict[str, Any]], deliveries: list[dict[str, Any]] | None = None) -> Tables:
    found = {"attempt": columns("attempt", attempts), "delivery": columns("delivery", deliveries or [])}
    return Tables(by_name=found)


def test_servers_die_every_ten_seconds_and_then_the_cells_in_turn() -> None:
    planned = entries(7, minutes=0.5, restarts=3)
    assert [each.kind for each in planned] == [DRILL] * 3 + [RESTART] * 3
    assert [each.at for each in planned] == [2.0, 12.0, 22.0, 50.0, 75.0, 100.0]
    assert [each.target for each in planned] == ["", "", "", "cell0", "cell1", "cell0"]
    assert entries(7, minutes=0.5, restarts=3) == planned != entries(8, minutes=0.5, restarts=3)


def test_the_last_partition_decides_when_all_are_served() -> None:
    before = [call(0, 1, 2), call(1, 1, 2)]
    attempts = [*before, call(0, 10.5, 11), call(0, 12, 13), call(1, 13, 14.5)]
    deliveries = [call(0, 11, 12), call(1, 14, 16)]
    (found,) = returned(tables(attempts, deliveries), RUN)
    assert found == PostgresReturn(cell="cell1", down=2.0, published=4.5, consumed=6.0)


@pytest.mark.parametrize("late", [call(1, 9, 11), call(1, 11, 12, CallOutcome.INFO)], ids=["begun before", "unknown"])
def test_a_call_counts_that_was_begun_after_the_return_and_is_ok(late: dict[str, Any]) -> None:
    (found,) = returned(tables([call(1, 1, 2), late]), RUN)
    assert found.published == -1.0


@pytest.mark.parametrize(
    ("published", "consumed", "verdict"),
    [
        (9.9, 9.9, CheckVerdict.VALID),
        (10.1, 1, CheckVerdict.INVALID),
        (1, 10.1, CheckVerdict.INVALID),
        (1, -1, CheckVerdict.INVALID),
    ],
)
def test_l4_asks_for_both_within_ten_seconds(published: float, consumed: float, verdict: CheckVerdict) -> None:
    found = PostgresReturn(cell="cell1", down=2.0, published=published, consumed=consumed)
    assert judge_returns([found], RUN)["L4"].verdict is verdict


def test_figures_are_of_what_was_first_tried_in_the_drill() -> None:
    attempts = [
        call(0, 1, 2, identity=1),
        call(0, 1, 3, CallOutcome.INFO, identity=2),
        call(0, 3, 8, identity=2),
        call(0, 5, 6, CallOutcome.INFO, identity=3),
        call(0, 70, 90, identity=4),
    ]
    found = _figures(tables(attempts), RUN, [], (CheckVerdict.VALID, 7, 1.0))
    assert (found.publishes, found.kills, found.never, found.longest_seconds) == (3, 1, 1, 7.0)
    assert found.share == pytest.approx(1 / 3)
