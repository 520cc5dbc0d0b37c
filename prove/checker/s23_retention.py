"""S23: retention removes nothing younger than its limit, and unfinished messages that it cuts are counted.

The count is compared with what the group can have finished: below the log start, messages that cannot have been
finished were cut, and messages that were certainly finished were not. Filtered and expired messages are known only by
their number, and the count may differ by that number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prove.checker.enum_codes import OUTCOME, VERB
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.row_matching import Array, counted, true_at
from prove.history.tables import OwnerVerb, TableColumns, Tables

_NEVER = 1 << 62
_SURE = np.array([verb in (OwnerVerb.ACK, OwnerVerb.DISCARD, OwnerVerb.FAIL) for verb in OwnerVerb])
_ENDING = _SURE | np.array([verb == VERB.NACK for verb in OwnerVerb])
"""The verbs that may end a message. A nack may be the last one, and a group without dead letters keeps no record of
it.
"""


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    found = _too_young(tables["cut"], run)
    progress = tables["progress"]
    last = true_at(progress.final & (progress.outcome == OUTCOME.OK))
    if len(last):
        found += _counted(tables, progress.where(last[[np.argmax(progress.completed_ns[last])]]), run)
    return found[:MOST]


def _too_young(cuts: TableColumns, run: RunInfo) -> list[Violation]:
    """Return cuts of messages that are too young. A cut by size or by an operator has no age limit."""
    young = (cuts.horizon_ms > 0) & (cuts.youngest_ms > cuts.horizon_ms)
    return [
        _violation(
            f"retention removed {_where(cuts, at, run)} up to {cuts.end[at]}, of which the youngest is "
            f"{cuts.youngest_ms[at] - cuts.horizon_ms[at]} ms too young"
        )
        for at in true_at(young)[:MOST].tolist()
    ]


@dataclass(frozen=True, kw_only=True)
class _EndedOffsets:
    """The offsets that certainly ended in the group's last position epoch, and those that possibly ended."""

    sure: Array
    maybe: Array
    late: int
    """The number of messages that may have ended after the first cut."""


def _counted(tables: Tables, last: TableColumns, run: RunInfo) -> list[Violation]:
    at = 0
    start, said = int(last.start[at]), int(last.cut[at])
    cuts = tables["cut"]
    if not len(cuts) and not said:
        return []  # Ended in any way: such a message was not cut, and is not counted.
    # Messages that the group has not considered yet are counted when it does.
    reach = min(int(cuts.end.max()) if len(cuts) else 0, int(last.frontier[at]))
    ends = _ends(tables, int(cuts.at_ns.min()) if len(cuts) else _NEVER)
    # Ended without an answer: by a commit, or by the end of a lease.
    hidden = max(0, _sum(last, at, "acked", "discarded", "dead") - _below(ends.maybe, start, _NEVER))
    passed = hidden + _sum(last, at, "filtered", "expired", "leased", "waiting", "skipped")
    least = max(0, reach - start) - _below(ends.maybe, start, reach) - passed
    considered = int(last.frontier[at])
    most = max(0, considered - start) - _below(ends.sure, start, considered)
    where = _where(last, at, run)
    group = run.name(last.group[at])
    if said < least:
        return [_violation(f"{group} in {where} counts {said} cut; at least {least} below {reach} never ended")]
    if said > most:
        return [_violation(f"{group} in {where} counts {said} cut; at most {most} below {considered} can be")]
    told = _reported_cut(tables, int(last.group[at]))
    if said < told - ends.late - passed:
        return [_violation(f"{group} in {where} counts {said} cut; {told} were reported as cut unfinished")]
    return []


def _sum(rows: TableColumns, at: int, *names: str) -> int:
    return sum(int(rows.arrays[name][at]) for name in names)


def _ends(tables: Tables, first_cut_ns: int) -> _EndedOffsets:
    answers, calls, dead = tables["answer"], tables["call"], tables["dead"]
    seeks = calls.where((calls.verb == VERB.SEEK) & (calls.outcome != OUTCOME.FAIL))
    sure_seeks = seeks.where(seeks.outcome == OUTCOME.OK)
    after = int(np.where(_known(seeks), seeks.completed_ns, _NEVER).max()) if len(seeks) else 0
    before = int(sure_seeks.invoked_ns.max()) if len(sure_seeks) else 0
    ended = np.where(_known(answers), answers.completed_ns, _NEVER)
    maybe = _ENDING[answers.verb] & (answers.outcome != OUTCOME.FAIL) & (ended >= before)
    sure = _SURE[answers.verb] & (answers.outcome == OUTCOME.OK) & (answers.invoked_ns > after)
    return _EndedOffsets(
        sure=counted(answers.offset[sure])[0],
        maybe=counted(np.concatenate([answers.offset[maybe], dead.offset]))[0],
        late=len(counted(answers.offset[maybe & (ended >= first_cut_ns)])[0]),
    )


def _known(rows: TableColumns) -> Array:
    known: Array = (rows.completed_ns > 0) & (rows.outcome != OUTCOME.INFO)
    return known


def _reported_cut(tables: Tables, group: int) -> int:
    """Return how many unfinished messages retention reported as cut; 0 if positions were moved since."""
    cuts, calls = tables["cut"], tables["call"]
    if ((calls.verb == VERB.SEEK) & (calls.outcome != OUTCOME.FAIL)).any():
        return 0
    return int(cuts.unfinished[(cuts.group == group) & (cuts.unfinished > 0)].sum())


def _below(offsets: Array, start: int, end: int) -> int:
    return int(((offsets >= start) & (offsets < end)).sum())


def _where(rows: TableColumns, at: int, run: RunInfo) -> str:
    return f"{run.name(rows.topic[at])}/{int(rows.partition[at])}"


def _violation(what: str) -> Violation:
    return Violation(invariant="S23", what=what)


INVARIANT = Invariant(
    name="S23",
    says="retention never removes younger data; messages that it cuts unfinished are counted",
    scope=CheckScope.LEASE,
    check=check,
    about=rows_of("cut"),
)
