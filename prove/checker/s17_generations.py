"""S17: at most one assigned member per partition and generation; calls that name an old generation are refused.

The assignment changes only with the generation, so all responses of one generation must agree. A partition refuses
generations older than the newest that it has served. Otherwise, if an announcement is lost, a server may learn about
the newest generation up to a second late.
"""

from __future__ import annotations

import numpy as np

from prove.checker.enum_codes import MEMBERSHIP, OUTCOME
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.row_matching import beginnings, differs, mixed, true_at
from prove.checker.timing import SECOND, most_before
from prove.checker.violation_text import calls
from prove.history.tables import MemberEvent, TableColumns, Tables

HEARD_NS = 2 * SECOND
"""Time after which every server knows a generation: one second, and one more for clock differences."""
CALL_NS = 60 * SECOND
"""Maximum duration of a call."""
_TOLD = (MemberEvent.JOIN, MemberEvent.ASSIGNED, MemberEvent.REVOKED)


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["member"]
    if not len(rows):
        return []
    rows = rows.where((rows.outcome == OUTCOME.OK) & (rows.generation > 0))
    if not len(rows):
        return []
    assigned = rows.where(rows.event == MEMBERSHIP.ASSIGNED)
    commits = rows.where(rows.event == MEMBERSHIP.COMMIT)
    found = (
        _shared(assigned, run)
        + _fenced(commits, run)
        + _commits_under_other_owner(assigned, commits, run)
        + _outdated(rows, run)
    )
    return found[:MOST]


def _shared(assigned: TableColumns, run: RunInfo) -> list[Violation]:
    """Return pairs of members that own a partition in the same generation."""
    rows = assigned.sorted_by("topic", "partition", "generation", "member")
    same = ~differs(rows.topic, rows.partition, rows.generation)
    return [
        _violation(
            f"{run.name(rows.member[at])} and {run.name(rows.member[at + 1])} both own {_where(rows, at, run)} "
            f"in generation {rows.generation[at]}",
            run,
            (rows, at),
            (rows, at + 1),
        )
        for at in true_at(same & (rows.member[1:] != rows.member[:-1]))[:MOST].tolist()
    ]


def _fenced(commits: TableColumns, run: RunInfo) -> list[Violation]:
    """Return commits that were accepted after a commit of a newer generation in the same partition."""
    code = mixed(commits.topic, commits.partition)
    newest = most_before(code, commits.completed_ns, commits.generation, code, commits.invoked_ns)
    found = []
    for at in true_at(newest > commits.generation)[:MOST].tolist():
        newer = (
            (code == code[at]) & (commits.generation == newest[at]) & (commits.completed_ns < commits.invoked_ns[at])
        )
        what = f"a commit of {run.name(commits.member[at])} in {_where(commits, at, run)} names generation "
        what += f"{commits.generation[at]}, and was accepted after one of generation {newest[at]}"
        found.append(_violation(what, run, (commits, int(true_at(newer)[0])), (commits, at)))
    return found


def _commits_under_other_owner(assigned: TableColumns, commits: TableColumns, run: RunInfo) -> list[Violation]:
    """Return commits that were accepted while another member owned the partition in a newer generation."""
    if not len(commits):
        return []
    rows = assigned.sorted_by("topic", "partition", "generation", "member", "completed_ns")
    begins = beginnings(rows.topic, rows.partition, rows.generation, rows.member)
    if not len(begins):
        return []
    held = rows.where(begins)
    # The start of a call without a duration is unknown, and its generation may have ended when it was returned.
    asked = np.where(rows.invoked_ns < rows.completed_ns, rows.invoked_ns, rows.completed_ns - CALL_NS)
    until = np.maximum.reduceat(asked, begins) - HEARD_NS
    order = np.argsort(held.completed_ns, kind="stable")
    held, until = held.where(order), until[order]
    last = most_before(
        mixed(held.topic, held.partition),
        held.completed_ns,
        np.arange(len(held)),
        mixed(commits.topic, commits.partition),
        commits.invoked_ns - HEARD_NS,
    )
    wrong = (last >= 0) & (commits.completed_ns < until[last]) & (commits.generation < held.generation[last])
    wrong &= commits.member != held.member[last]
    return [
        _violation(
            f"a commit of {run.name(commits.member[at])} in {_where(commits, at, run)} names generation "
            f"{commits.generation[at]}, and was accepted while {run.name(held.member[last[at]])} owned it in "
            f"generation {held.generation[last[at]]}",
            run,
            (held, int(last[at])),
            (commits, at),
        )
        for at in true_at(wrong)[:MOST].tolist()
    ]


def _outdated(rows: TableColumns, run: RunInfo) -> list[Violation]:
    """Return consumes that were served although they name a generation that every server knew to be outdated."""
    asked = rows.where(rows.event == MEMBERSHIP.CONSUME)
    told = rows.where(np.isin(rows.event, _TOLD))
    newest = most_before(
        np.zeros(len(told), np.int64),
        told.completed_ns,
        told.generation,
        np.zeros(len(asked), np.int64),
        asked.invoked_ns - HEARD_NS,
    )
    found = []
    for at in true_at(newest > asked.generation)[:MOST].tolist():
        proof = int(np.argmin(np.where(told.generation == newest[at], told.completed_ns, np.iinfo(np.int64).max)))
        what = f"a consume of {run.name(asked.member[at])} names generation {asked.generation[at]}, and was served "
        what += f"when generation {newest[at]} had been given"
        found.append(_violation(what, run, (told, proof), (asked, at)))
    return found


def _where(rows: TableColumns, at: int, run: RunInfo) -> str:
    return f"{run.name(rows.topic[at])}/{int(rows.partition[at])}"


def _violation(what: str, run: RunInfo, *shown: tuple[TableColumns, int]) -> Violation:
    said = [each for rows, at in shown for each in calls(run, rows, [at])]
    return Violation(invariant="S17", what=what, calls=tuple(dict.fromkeys(said)))


INVARIANT = Invariant(
    name="S17",
    says="at most one assigned member per partition and generation; calls that name an old generation are refused",
    scope=CheckScope.GROUP,
    check=check,
    about=rows_of("member"),
)
