"""The contents of a report as plain numbers and texts, written as JSON and shown as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from prove.checker import l3_publish_success as l3
from prove.checker import l4_postgres_recovery as l4
from prove.checker.catalog import INVARIANTS
from prove.checker.invariant import RunInfo, Violation
from prove.checker.judgement import CheckVerdict, Judgement
from prove.checker.timing import SECOND
from prove.history.tables import TABLES, CallOutcome, MemberEvent, TableColumns, Tables
from prove.lab.cpu_stalls import STALLED
from prove.lab.digest import Digest
from prove.lab.effects import Effect
from prove.lab.report.message_trace import trace_of


class ReportedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. Times are seconds from the beginning of the load."""

    kind: str
    about: str
    began: float
    ended: float
    counts: bool
    signs: dict[str, int]


class CounterExample(msgspec.Struct, frozen=True, kw_only=True):
    """A counter-example, and the trace of its message."""

    what: str
    calls: tuple[str, ...]
    trace: tuple[str, ...]


class JudgedInvariant(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    says: str
    verdict: str
    rows: int
    seconds: float
    doubts: tuple[str, ...]
    found: tuple[CounterExample, ...]


class RunTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """The counts for each second of the run."""

    published: list[int]
    delivered: list[int]
    acked: list[int]
    redelivered: list[int]
    rebalances: list[float]
    """When each generation was first observed, in seconds."""
    load_seconds: float
    healed: float
    drained: float
    speed_by_minute: list[float] = []
    """The processor speed during the load, as a share of the best."""


class ReportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of one run."""

    size: str
    seed: int
    verdict: str
    repeat: str
    invariants: tuple[JudgedInvariant, ...]
    faults: tuple[ReportedFault, ...]
    figures: dict[str, float]
    notes: tuple[str, ...]
    """Problems that concern no invariant: faults that were not injected, clients that failed, too few messages or
    faults."""
    timeline: RunTimeline


STORIES = 3
"""The number of violations per invariant that are reported with a trace."""


def invariants_of(judged: Mapping[str, Judgement], tables: Tables, run: RunInfo) -> tuple[JudgedInvariant, ...]:
    says = {each.name: each.says for each in INVARIANTS}
    return tuple(_judged(name, says.get(name, ""), each, (tables, run)) for name, each in judged.items())


def traced_violations(judged: Mapping[str, Judgement]) -> list[Violation]:
    """Return the violations whose calls must be kept, for their traces and times."""
    return [violation for each in judged.values() for violation in each.violations]


def _judged(name: str, says: str, judgement: Judgement, known: tuple[Tables, RunInfo]) -> JudgedInvariant:
    found = tuple(
        CounterExample(
            what=each.what,
            calls=each.calls,
            trace=tuple(trace_of(each, *known)) if number < STORIES else (),
        )
        for number, each in enumerate(judgement.violations)
    )
    touched = judgement.rows or judgement.verdict is not CheckVerdict.VALID
    return JudgedInvariant(
        name=name,
        says=says,
        verdict=judgement.verdict.value if touched else "not touched",
        rows=judgement.rows,
        seconds=round(judgement.seconds, 3),
        doubts=judgement.doubts,
        found=found,
    )


def faults_of(effects: Iterable[Effect], run: RunInfo) -> tuple[ReportedFault, ...]:
    zero = run.load_ns[0]
    return tuple(
        ReportedFault(
            kind=each.fault.kind,
            about=each.fault.about,
            began=(each.fault.began_ns - zero) / SECOND,
            ended=(each.fault.ended_ns - zero) / SECOND,
            counts=each.counts,
            signs={sign.value: count for sign, count in each.signs.items()},
        )
        for each in sorted(effects, key=lambda each: each.fault.began_ns)
    )


def figures_of(
    judged: Mapping[str, Judgement],
    digest: Digest,
    tables: Tables,
    effects: Sequence[Effect],
    in_drill: Tables | None = None,
) -> dict[str, float]:
    """Return the main figures; `tables` have the samples of L4, and `in_drill` the publishes of L3."""
    counted = Counter(each.fault.kind for each in effects if each.counts)
    found: dict[str, float | None] = {
        "messages acknowledged": digest.counts["acknowledged"],
        "publishes of unknown outcome": digest.counts["unknown"],
        "deliveries": digest.counts["delivery"],
        "deliveries because an owner was lost": digest.counts["suspect"],
        "dead letters": digest.counts["dead"],
        "segments": digest.counts["segment"],
        "faults that count": sum(counted.values()),
        "kinds of faults that count": len(counted),
        "faults without effect": len(effects) - sum(counted.values()),
        "seconds in which the machine stalled": _stalled_seconds(digest.run),
        "rows judged": sum(digest.counts[name] for name in TABLES),
        "L3: share of publishes that succeeded within 5 s of the first attempt": l3.figure(in_drill, digest.run)
        if in_drill
        else None,
        "L4: worst seconds until serving": l4.figure(tables, digest.run),
        "L5: worst seconds until a message of a dead owner was leased again": judged["L5"].worst,
    }
    return {name: round(float(number), 5) for name, number in found.items() if number is not None}


def _stalled_seconds(run: RunInfo) -> float:
    return sum(each.ended_ns - each.began_ns for each in run.faults if each.kind == STALLED) / SECOND


def timeline_of(digest: Digest, speed_by_minute: Sequence[float] = ()) -> RunTimeline:
    run = digest.run
    zero = run.load_ns[0]

    def by_second(name: str) -> list[int]:
        return [int(count) for count in digest.by_second.get(name, ())]

    return RunTimeline(
        published=by_second("published"),
        delivered=by_second("delivered"),
        acked=by_second("acked"),
        redelivered=by_second("redelivered"),
        rebalances=_rebalances(digest.tables["member"], zero),
        load_seconds=(run.load_ns[1] - zero) / SECOND,
        healed=(run.healed_ns - zero) / SECOND,
        drained=(run.drained_ns - zero) / SECOND,
        speed_by_minute=[*speed_by_minute],
    )


def _rebalances(members: TableColumns, zero: int) -> list[float]:
    told = np.isin(members.event, (MemberEvent.JOIN, MemberEvent.ASSIGNED, MemberEvent.REVOKED))
    rows = members.where(told & (members.outcome == CallOutcome.OK) & (members.generation > 0))
    if not len(rows):
        return []
    rows = rows.sorted_by("generation", "completed_ns")
    _, firsts = np.unique(rows.generation, return_index=True)
    return [round((int(at) - zero) / SECOND, 2) for at in rows.completed_ns[firsts]]
