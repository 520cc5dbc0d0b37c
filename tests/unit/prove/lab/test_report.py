"""The report: untrusted texts are escaped, and a counter-example comes with the trace of its message."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec

from prove.checker.invariant import RunInfo, Violation
from prove.checker.judgement import CheckVerdict, Judgement
from prove.history.loading import History
from prove.history.tables import CallOutcome, OwnerVerb, Tables, columns, text_id
from prove.lab.digest import KeptRows, of_history
from prove.lab.report.page import page
from prove.lab.report.summary import (
    ReportedFault,
    ReportSummary,
    RunTimeline,
    invariants_of,
    timeline_of,
    traced_violations,
)

SECOND = 1_000_000_000
HOSTILE = "<script>alert('x')</script>&\"'"


def history() -> History:
    names = ["orders", "billing", "w-1", "p-1"]
    place = {"topic": text_id("orders"), "partition": 0, "offset": 7}
    call = {"outcome": int(CallOutcome.OK), "counter": 3}
    given = {**place, **call, "group": text_id("billing"), "process": text_id("w-1"), "owner": text_id("w-1")}
    tables = {
        "attempt": [{**place, **call, "process": text_id("p-1"), "invoked_ns": SECOND, "completed_ns": 2 * SECOND}],
        "delivery": [{**given, "token": 4, "number": 1, "invoked_ns": 3 * SECOND, "completed_ns": 3 * SECOND}],
        "answer": [
            {**given, "token": 4, "verb": int(OwnerVerb.ACK), "invoked_ns": 4 * SECOND, "completed_ns": 4 * SECOND}
        ],
    }
    return History(
        tables=Tables(by_name={name: columns(name, rows) for name, rows in tables.items()}),
        run=RunInfo(names={text_id(name): name for name in names}, load_ns=(SECOND, 5 * SECOND), drained_ns=6 * SECOND),
    )


def summary(what: str = "it was there twice") -> ReportSummary:
    violation = Violation(invariant="S10", what=what, calls=("w-1-3",), place=("orders", 0, 7))
    judged = {"S10": Judgement(verdict=CheckVerdict.INVALID, violations=(violation,), rows=3)}
    found = history()
    digest = of_history(found, KeptRows(violations=traced_violations(judged)))
    fault = ReportedFault(kind=HOSTILE, about=HOSTILE, began=1, ended=2, counts=True, signs={HOSTILE: 3})
    return ReportSummary(
        size="ci",
        seed=1,
        verdict="invalid",
        repeat=f"scripts/prove {HOSTILE}",
        invariants=invariants_of(judged, digest.tables, found.run),
        faults=(fault,),
        figures={HOSTILE: 1.5},
        notes=(HOSTILE,),
        timeline=timeline_of(digest),
    )


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_hostile_texts_are_escaped_everywhere() -> None:
    text = page(summary(HOSTILE))
    tags = Tags()
    tags.feed(text)
    assert "script" not in tags.tags and not {name for name in tags.attributes if name.startswith("on")}
    assert "alert(" in text and "<script" not in text


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = page(summary())
    assert "http" not in text and "<link" not in text and " src=" not in text


def test_a_counter_example_has_the_story_of_its_message_in_order() -> None:
    ((judged,),) = (summary().invariants,)
    (found,) = judged.found
    assert [line.split(":")[1].split()[0] for line in found.trace] == ["attempt", "delivery", "answer"]
    assert "p-1-3" in found.trace[0] and "orders/0@7" in found.trace[0]
    assert "token 4" in found.trace[1] and "ack" in found.trace[2]


def test_the_timeline_counts_by_second() -> None:
    timeline = timeline_of(of_history(history(), KeptRows()))
    assert isinstance(timeline, RunTimeline)
    assert timeline.published == [0, 1, 0, 0, 0, 0]
    assert timeline.delivered == [0, 0, 1, 0, 0, 0]
    assert timeline.acked == [0, 0, 0, 1, 0, 0]


def test_a_message_acknowledged_twice_is_one_message() -> None:
    row = {"outcome": int(CallOutcome.OK), "topic": 1, "partition": 0, "offset": 7}
    rows = columns("attempt", [row, {**row, "duplicate": True}, {**row, "offset": 8}, {**row, "outcome": 2}])
    digest = of_history(History(tables=Tables(by_name={"attempt": rows}), run=RunInfo()), KeptRows())
    assert digest.counts["acknowledged"] == 2 and digest.counts["unknown"] == 1


def test_of_all_rows_only_those_that_tell_something_are_kept() -> None:
    kept = of_history(history(), KeptRows()).tables
    assert not len(kept["attempt"]) and not len(kept["delivery"]) and not len(kept["answer"])
    of_victim = of_history(history(), KeptRows(victims=frozenset({"w-1"}))).tables
    assert len(of_victim["delivery"]) == 1 and not len(of_victim["attempt"])


def test_the_summary_goes_through_json() -> None:
    made = summary()
    assert msgspec.json.decode(msgspec.json.encode(made), type=ReportSummary) == made
