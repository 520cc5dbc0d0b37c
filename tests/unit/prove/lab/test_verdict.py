"""Requirements of a run: messages, faults that count, their kinds; and L3 and L4 as the laboratory measures them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from prove.checker.invariant import FaultInterval, RunInfo, Violation
from prove.checker.judgement import CheckVerdict, Judgement
from prove.history.loading import History
from prove.history.tables import CallOutcome, SampleKind, Tables, columns, text_id
from prove.lab.digest import Digest, KeptRows, of_history
from prove.lab.laboratory import FinishedRun
from prove.lab.sizes import SIZES
from prove.lab.verdict import _notes, _verdict, drilled, shown_after, with_returns

SECOND = 1_000_000_000
SIZE = replace(SIZES["ci"], messages=2, faults=0, kinds=0)
PLAYED = FinishedRun(
    folder=Path(), faults=(), failed=(), broken=(), roles={}, undrained=(), messages=0, seconds={}
)  # fmt: skip


def published(
    number: int, began: float, ended: float, outcome: CallOutcome = CallOutcome.OK, **more: Any
) -> dict[str, Any]:
    return {
        "outcome": int(outcome), "invoked_ns": int(began * SECOND), "completed_ns": int(ended * SECOND),
        "topic": 1, "partition": 0, "offset": number, "identity": number + 1, **more,
    }  # fmt: skip


def digest(*rows: dict[str, Any], faults: tuple[FaultInterval, ...] = (), **targets: float) -> Digest:
    tables = Tables(by_name={"attempt": columns("attempt", rows)})
    run = RunInfo(faults=faults, targets=targets, load_ns=(0, 100 * SECOND))
    return of_history(History(tables=tables, run=run), KeptRows())


def l3_of(*rows: dict[str, Any], drill_seconds: float = 0.0) -> dict[str, Judgement]:
    found = digest(*rows, drill_seconds=drill_seconds)
    return drilled(found.tables, found.run)


def test_too_few_messages_or_faults_prove_nothing() -> None:
    two = digest(published(0, 1, 2), published(1, 1, 2)).counts["acknowledged"]
    assert _notes(PLAYED, two, SIZE, []) == []
    assert "2 messages" in _notes(PLAYED, two, replace(SIZE, messages=3), [])[0]
    assert "0 faults" in _notes(PLAYED, two, replace(SIZE, faults=1), [])[0]
    assert _notes(replace(PLAYED, broken=("w",), undrained=("x",)), two, SIZE, [])[0].startswith("a client failed")


def test_a_violation_is_worse_than_too_little_and_that_is_worse_than_nothing() -> None:
    valid, invalid = Judgement(verdict=CheckVerdict.VALID), Judgement(verdict=CheckVerdict.INVALID)
    assert _verdict({"S1": valid}, []) == "valid"
    assert _verdict({"S1": valid}, ["too few"]) == "unknown"
    assert _verdict({"S1": valid, "S2": invalid}, ["too few"]) == "invalid"
    assert _verdict({}, []) == "unknown"


def test_l4_is_the_first_publish_begun_after_postgresql_was_back() -> None:
    fault = FaultInterval(kind="postgres killed", began_ns=10 * SECOND, ended_ns=12 * SECOND)
    found = with_returns(digest(published(0, 11, 12.5), published(1, 13, 13.5), faults=(fault,)))["sample"]
    assert [(row, told) for row, told in zip(found.kind, found.told, strict=True)] == [(SampleKind.SERVING, 1500)]
    never = with_returns(digest(published(0, 11, 12.5), faults=(fault,)))["sample"]
    assert list(never.told) == [-1]


def test_l4_says_nothing_where_the_next_fault_came_too_soon() -> None:
    fault = FaultInterval(kind="postgres killed", began_ns=10 * SECOND, ended_ns=12 * SECOND)
    other = FaultInterval(kind="all servers killed", began_ns=13 * SECOND, ended_ns=30 * SECOND)
    assert not len(with_returns(digest(published(0, 31, 32), faults=(fault, other)))["sample"])


def test_l3_looks_at_what_was_first_tried_in_the_drill() -> None:
    late = [published(0, 1, 3, CallOutcome.INFO), published(0, 3, 7)]
    assert l3_of(*late, drill_seconds=33.0)["L3"].verdict is CheckVerdict.INVALID
    soon = [published(0, 1, 3, CallOutcome.INFO), published(0, 3, 5), published(1, 40, 60)]
    assert l3_of(*soon, drill_seconds=33.0)["L3"].verdict is CheckVerdict.VALID
    assert l3_of(*late) == {}


def test_l3_is_not_of_publishes_without_an_identity() -> None:
    """They cannot be repeated safely, and a missing identity is not a shared identity."""
    lost = [
        published(number, began, began + 2, CallOutcome.INFO, identity=0) for number, began in enumerate((1, 20, 40))
    ]
    assert l3_of(*lost, published(3, 1, 3), drill_seconds=33.0)["L3"].verdict is CheckVerdict.VALID


def test_a_counter_example_is_shown_when_its_last_call_is_over_and_the_soonest_counts() -> None:
    p = {"process": text_id("p-1")}
    found = digest(
        published(0, 1, 9, CallOutcome.INFO, **p, counter=4), published(1, 2, 3, CallOutcome.INFO, **p, counter=5)
    )
    early, late = (Violation(invariant="S1", what="", calls=calls) for calls in (("p-1-5",), ("p-1-5", "p-1-4")))
    end = Violation(invariant="S1", what="", calls=("the end",))

    def after(*violations: Violation) -> float | None:
        judged = Judgement(verdict=CheckVerdict.INVALID, violations=violations)
        return shown_after(judged, found.tables, replace(found.run, load_ns=(SECOND, 0)))

    assert after(late) == 8.0
    assert after(end, late, early) == 2.0
    assert after(end) is None
