"""Judges the results of the laboratory: the invariants, and whether enough happened to prove anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from prove.checker import l3_publish_success as l3
from prove.checker import l4_postgres_recovery as l4
from prove.checker.invariant import FaultInterval, RunInfo, Violation
from prove.checker.judgement import CheckVerdict, Judgement, judge, judge_tables
from prove.commands import write_json
from prove.history.loading import load, open_run
from prove.history.tables import CallOutcome, SampleKind, TableColumns, Tables, columns, joined, text_id
from prove.lab.digest import RETURNS, Digest, KeptRows, of_folder, of_history
from prove.lab.effects import Effect, Effects
from prove.lab.laboratory import FinishedRun
from prove.lab.report import summary as summaries
from prove.lab.report.page import page
from prove.lab.sizes import RunSize

L3_SHARE = 0.999
SPARK_FROM = 12_000_000
"""The number of rows above which a run does not fit into the memory of a small machine."""


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The conclusion from a run."""

    judged: Mapping[str, Judgement]
    effects: Sequence[Effect]
    summary: summaries.ReportSummary
    shown_after: Mapping[str, float] = field(default_factory=dict)
    """Seconds of load until the calls of the earliest counter-example of each invariant had ended."""

    @property
    def status(self) -> int:
        """Return the exit status: 0 valid, 1 invalid, 2 unknown."""
        return {"valid": 0, "invalid": 1}.get(self.summary.verdict, 2)


def conclude(finished: FinishedRun, size: RunSize, seed: int, repeat: str) -> Conclusion:
    """Judge the run's folder, and write the report into it."""
    judged, digest = _judged(finished)
    tables, run = with_returns(digest), digest.run
    judged |= drilled(tables, run) | judge_tables(
        Tables(by_name={"sample": tables["sample"]}), run, invariants=[l4.INVARIANT]
    )
    effects = Effects(tables, finished.roles, run.names)
    shown = [effects.of(fault) for fault in finished.faults]
    notes = _notes(finished, digest.counts["acknowledged"], size, shown)
    summary = summaries.ReportSummary(
        size=size.name,
        seed=seed,
        verdict=_verdict(judged, notes),
        repeat=repeat,
        invariants=summaries.invariants_of(judged, tables, run),
        faults=summaries.faults_of(shown, run),
        figures=summaries.figures_of(judged, digest, tables, shown, _in_drill(tables, run))
        | ({"processors' speed, as a share of their best": round(finished.speed, 2)} if finished.speed else {}),
        notes=tuple(notes) + tuple(f"a fault could not be injected: {each}" for each in finished.failed),
        timeline=summaries.timeline_of(digest, finished.speed_by_minute),
    )
    write(finished.folder, summary)
    after = {name: seconds for name, each in judged.items() if (seconds := shown_after(each, tables, run)) is not None}
    return Conclusion(judged=judged, effects=shown, summary=summary, shown_after=after)


def _judged(finished: FinishedRun) -> tuple[dict[str, Judgement], Digest]:
    """Judge in this process if the run fits into memory, else with Spark."""
    victims = frozenset(name for fault in finished.faults for name in fault.victims)
    if open_run(finished.folder).size < SPARK_FROM:
        history = load(finished.folder)
        judged = judge(history)
        return judged, of_history(history, KeptRows(victims=victims, violations=summaries.traced_violations(judged)))
    from prove.checker.spark_job import judge_folder

    judged = judge_folder(finished.folder)
    return judged, of_folder(finished.folder, KeptRows(victims=victims, violations=summaries.traced_violations(judged)))


def write(folder: Path, summary: summaries.ReportSummary) -> None:
    write_json(folder / "report.json", summary)
    (folder / "report.html").write_text(page(summary), encoding="utf-8")


def with_returns(digest: Digest) -> Tables:
    """Add the time until the first successful publish after each return of PostgreSQL.

    A return proves nothing if the next fault came before the first successful publish.
    """
    attempts, faults = digest.tables["attempt"], digest.run.faults
    ok = attempts.where(attempts.outcome == CallOutcome.OK)
    rows = []
    for fault in faults:
        if fault.kind not in RETURNS:
            continue
        served = ok.completed_ns[ok.invoked_ns >= fault.ended_ns]
        waited = (int(served.min()) - fault.ended_ns) // 1_000_000 if len(served) else -1
        if 0 <= waited <= 10_000 or not _disturbed(fault.ended_ns, [each for each in faults if each is not fault]):
            rows.append({"kind": int(SampleKind.SERVING), "at_ns": fault.ended_ns, "told": waited})
    samples = joined("sample", [digest.tables["sample"], columns("sample", rows)])
    return Tables(by_name={**digest.tables.by_name, "sample": samples})


def shown_after(judged: Judgement, tables: Tables, run: RunInfo) -> float | None:
    """Return the earliest time of the counter-examples whose calls were kept; None if there are none."""
    moments = [_shown_ns(violation, tables) for violation in judged.violations]
    known = [moment for moment in moments if moment]
    return (min(known) - run.load_ns[0]) / 1e9 if known else None


def _shown_ns(violation: Violation, tables: Tables) -> int:
    """Return when the last call of a counter-example ended; 0 if it has none."""
    last = 0
    for call in violation.calls:
        process, _, counter = call.rpartition("-")
        for rows in tables.by_name.values():
            if counter.isdigit() and "counter" in rows.arrays:
                mine = (rows.process == text_id(process)) & (rows.counter == int(counter))
                last = max(last, int(rows.completed_ns[mine].max(initial=0)))
    return last


def drilled(tables: Tables, run: RunInfo) -> dict[str, Judgement]:
    """Judge L3 for publishes that began while one server was killed every 10 s, without other faults."""
    tried = _in_drill(tables, run)
    if tried is None:
        return {}
    run = replace(run, targets={**run.targets, "L3": L3_SHARE})
    return judge_tables(tried, run, invariants=[l3.INVARIANT])


def _in_drill(tables: Tables, run: RunInfo) -> Tables | None:
    """Return the publishes for L3, if there are any."""
    seconds = run.targets.get("drill_seconds", 0.0)
    if not seconds:
        return None
    return Tables(by_name={"attempt": first_tried(tables["attempt"], run.load_ns[0], seconds)})


def first_tried(attempts: TableColumns, began_ns: int, seconds: float) -> TableColumns:
    """Return all attempts of publishes that began in this time and have an identity, so that they may be repeated."""
    _, number = np.unique(attempts.identity, return_inverse=True)
    first = np.full(int(number.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, number, attempts.invoked_ns)
    return attempts.where((attempts.identity != 0) & (first < began_ns + int(seconds * 1e9))[number])


def _disturbed(at: int, others: Sequence[FaultInterval]) -> bool:
    return any(each.began_ns < at + 10_000_000_000 and each.ended_ns > at for each in others)


def _notes(finished: FinishedRun, messages: int, size: RunSize, effects: Sequence[Effect]) -> list[str]:
    """Return the reasons why nothing can be concluded, if there are any."""
    kinds = {each.fault.kind for each in effects if each.counts}
    counted = sum(each.counts for each in effects)
    notes = [f"a client failed: {each}" for each in finished.broken]
    notes += [f"not drained within {size.drain_seconds:g} s: {each}" for each in finished.undrained]
    if messages < size.messages:
        notes.append(f"{messages:,} messages were acknowledged; {size.messages:,} are required")
    if counted < size.faults or len(kinds) < size.kinds:
        notes.append(f"{counted} faults of {len(kinds)} kinds count; {size.faults} of {size.kinds} kinds are required")
    return notes


def _verdict(judged: Mapping[str, Judgement], notes: Sequence[str]) -> str:
    verdicts = {each.verdict for each in judged.values()}
    if CheckVerdict.INVALID in verdicts:
        return CheckVerdict.INVALID.value
    return (
        CheckVerdict.UNKNOWN.value
        if CheckVerdict.UNKNOWN in verdicts or notes or not verdicts
        else CheckVerdict.VALID.value
    )
