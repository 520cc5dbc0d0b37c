"""S18: rebalances are few and short, and affect only the members concerned.

A join, a leave, the end of a session or a change of the topics causes at most two rebalances. The end of a session
shows only in the member's next call, so a member that is missing at the end, or joins again, counts as gone once. In a
cursor group, releasing a partition adds a generation, which does not count. Duration and affected members are checked
only for isolated changes: no other change nearby, no fault, and all other members present before and after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from prove.checker.enum_codes import MEMBERSHIP, OUTCOME, VERB
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.row_matching import Array, beginnings, counted, differs, mixed, true_at
from prove.checker.timing import MS, SECOND, has_fault
from prove.checker.violation_text import calls
from prove.history.tables import MemberEvent, SampleKind, TableColumns, Tables

LIMIT_SECONDS = 1.5
SETTLED_NS = 10 * SECOND
"""Time after a change or a fault in which the next change is not judged."""
WATCHED_NS = 30 * SECOND
SESSION_NS = 60 * SECOND
"""A member without a call for this time counts as gone."""
JUDGED = 200
"""The largest number of isolated changes to check. One violation is enough."""


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["member"]
    if not len(rows):
        return []
    found = _too_many(rows, tables["sample"], run)
    news = _assignment_changes(rows)
    for change in _alone(rows, tables["call"], run):
        told = news.where((news.completed_ns > change.began_ns) & (news.completed_ns <= change.until_ns))
        found += _late(change, told, tables["call"], run)
        found += _disturbed(change, told, run)
        if len(found) >= MOST:
            break
    return found[:MOST]


# Number of rebalances -------------------------------------------------------------------------------------------------


def _too_many(rows: TableColumns, samples: TableColumns, run: RunInfo) -> list[Violation]:
    changes = _changes(rows, run) + _growths(rows)
    told = samples.told[samples.kind == SampleKind.REBALANCES]
    if len(told):
        happened = int(told.max() - (told.min() if len(told) > 1 else 0))
    else:
        sure = rows.where((rows.outcome == OUTCOME.OK) & (rows.generation > 0))
        given_up = sure.where(sure.event == MEMBERSHIP.REVOKED)
        rose = int(sure.generation.max() - sure.generation.min()) if len(sure) else 0
        happened = rose - len(counted(mixed(given_up.member, given_up.generation))[0])
    if happened <= 2 * changes:
        return []
    return [_violation(f"{run.name(rows.group[0])} had {happened} rebalances by {changes} changes of its members")]


def _changes(rows: TableColumns, run: RunInfo) -> int:
    """Return the number of joins and ends.

    A member that joined n times has ended n - 1 times, and once more if it is not present now.
    """
    may = rows.where(rows.outcome != OUTCOME.FAIL)
    joins = may.where(may.event == MEMBERSHIP.JOIN).sorted_by("member", "invoked_ns")
    last = np.append(beginnings(joins.member)[1:], len(joins)) - 1 if len(joins) else np.zeros(0, np.int64)
    top = int(rows.generation.max())
    here = set(rows.member[(rows.outcome == OUTCOME.OK) & (rows.generation == top)].tolist())
    left = may.where(may.event == MEMBERSHIP.LEAVE)
    leaves = dict(zip(left.member.tolist(), left.invoked_ns.tolist(), strict=True))
    stay = sum(
        1
        for member, process, at in zip(joins.member[last], joins.process[last], joins.invoked_ns[last], strict=True)
        if int(member) in here and int(process) not in run.crashed and leaves.get(int(member), 0) < at
    )
    return 2 * len(joins) - stay


def _growths(rows: TableColumns) -> int:
    """Return how often a topic may have gained partitions, because a higher partition was assigned than before."""
    given = rows.where((rows.event == MEMBERSHIP.ASSIGNED) & (rows.outcome == OUTCOME.OK))
    if not len(given):
        return 0
    given = given.sorted_by("topic", "generation", "partition")
    ends = np.append(beginnings(given.topic, given.generation)[1:], len(given)) - 1
    topics, highest = given.topic[ends], given.partition[ends].astype(np.int64)
    fresh = beginnings(topics)
    floor = np.cumsum(np.isin(np.arange(len(ends)), fresh)) << 32
    reached = np.maximum.accumulate(highest + floor)
    return int((np.diff(reached) > 0).sum()) - (len(fresh) - 1)


# Isolated changes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Change:
    """An isolated join or leave, up to `until_ns`."""

    row: int
    rows: TableColumns
    began_ns: int
    done_ns: int
    until_ns: int

    @property
    def member(self) -> int:
        return int(self.rows.member[self.row])

    @property
    def is_join(self) -> bool:
        return bool(self.rows.event[self.row] == MEMBERSHIP.JOIN)


def _alone(rows: TableColumns, asks: TableColumns, run: RunInfo) -> Iterator[_Change]:
    changes = rows.where(np.isin(rows.event, (MemberEvent.JOIN, MemberEvent.LEAVE)) & (rows.outcome != OUTCOME.FAIL))
    changes = changes.sorted_by("invoked_ns")
    if not len(changes):
        return
    # A call of unknown outcome may take effect later than its caller waits.
    over = np.where(changes.outcome == OUTCOME.OK, changes.completed_ns, changes.invoked_ns + SETTLED_NS)
    before = np.append(-SETTLED_NS, np.maximum.accumulate(over)[:-1])
    after = np.append(changes.invoked_ns[1:], np.iinfo(np.int64).max)
    alone = (changes.outcome == OUTCOME.OK) & (changes.invoked_ns - before > SETTLED_NS)
    lives = _member_calls(rows, asks)
    for row in true_at(alone)[:JUDGED].tolist():
        done = int(changes.completed_ns[row])
        until = min(int(after[row]), done + WATCHED_NS)
        change = _Change(row=row, rows=changes, began_ns=int(changes.invoked_ns[row]), done_ns=done, until_ns=until)
        if not has_fault(run, change.began_ns - SETTLED_NS, until) and _all_there(change, lives):
            yield change


def _member_calls(rows: TableColumns, asks: TableColumns) -> list[tuple[int, Array, Array]]:
    """Return each member with the times of its calls, and whether each was a join."""
    sure = rows.where((rows.outcome == OUTCOME.OK) & (rows.event != MEMBERSHIP.LEAVE))
    polls = asks.where((asks.outcome == OUTCOME.OK) & (asks.verb == VERB.CONSUME) & np.isin(asks.owner, sure.member))
    member = np.concatenate([sure.member, polls.owner])
    at = np.concatenate([sure.completed_ns, polls.completed_ns])
    joins = np.concatenate([sure.event == MEMBERSHIP.JOIN, np.zeros(len(polls), np.bool_)])
    if not len(member):
        return []
    order = np.lexsort((~joins, at, member))
    member, at, joins = member[order], at[order], joins[order]
    begins = beginnings(member)
    ends = np.append(begins[1:], len(member))
    return [(int(member[b]), at[b:e], joins[b:e]) for b, e in zip(begins.tolist(), ends.tolist(), strict=True)]


def _all_there(change: _Change, lives: list[tuple[int, Array, Array]]) -> bool:
    """Return whether all earlier members and the new member are present afterwards without another join."""
    for member, at, joins in lives:
        before = int(np.searchsorted(at, change.done_ns, "right")) - 1
        if before < 0 or at[before] < change.began_ns - SESSION_NS or (member == change.member and not change.is_join):
            continue
        after = int(np.searchsorted(at, change.until_ns, "right"))
        if after == len(at) or joins[after]:
            return False
    return True


def _assignment_changes(rows: TableColumns) -> TableColumns:
    """Return the first time that each member learned that it owns, or no longer owns, a partition."""
    heard = rows.where(
        (rows.outcome == OUTCOME.OK) & np.isin(rows.event, (MemberEvent.ASSIGNED, MemberEvent.REVOKED))
    ).sorted_by("member", "topic", "partition", "completed_ns", "counter")
    fresh = np.ones(len(heard), np.bool_)
    if len(heard):
        fresh[1:] = differs(heard.member, heard.topic, heard.partition, heard.event)
    return heard.where(fresh).sorted_by("completed_ns")


# Duration and affected members ----------------------------------------------------------------------------------------


def _late(change: _Change, told: TableColumns, asks: TableColumns, run: RunInfo) -> list[Violation]:
    """Return members that learned about the change too late while they waited in a poll.

    Time between their calls does not count.
    """
    limit = int(run.targets.get("S18", LIMIT_SECONDS) * SECOND)
    found = []
    for at in true_at(told.completed_ns > change.done_ns + limit).tolist():
        mine = (asks.owner == told.member[at]) & (asks.verb == VERB.CONSUME) & (asks.invoked_ns <= change.began_ns)
        ended = asks.completed_ns[mine & (asks.completed_ns >= change.done_ns)]
        if not len(ended):
            continue
        own = max(0, int(told.invoked_ns[at]) - int(ended.min()))
        took = int(told.completed_ns[at]) - change.done_ns - own
        if took > limit:
            what = f"{run.name(told.member[at])} waited, and learned of {run.name(told.topic[at])}/"
            what += f"{int(told.partition[at])} {took // MS} ms after {_change_text(change, run)}"
            found.append(_violation(what, *calls(run, change.rows, [change.row]), *calls(run, told, [at])))
    return found[:MOST]


def _disturbed(change: _Change, told: TableColumns, run: RunInfo) -> list[Violation]:
    """Return members that lost a partition because a member left, or to a member other than the new one."""
    topics = set(told.topic.tolist())
    if len(topics) != 1 or not run.rules_of(told.topic[0], told.group[0]).sticky:
        return []
    lost = told.where((told.event == MEMBERSHIP.REVOKED) & (told.member != change.member))
    got = told.where((told.event == MEMBERSHIP.ASSIGNED) & (told.member != change.member))
    found = []
    for at in range(len(lost)):
        takers = got.member[(got.partition == lost.partition[at]) & (got.member != lost.member[at])]
        if not change.is_join or len(takers):
            taker = f" to {run.name(takers[0])}" if len(takers) else ""
            what = f"{run.name(lost.member[at])} lost {run.name(lost.topic[at])}/{int(lost.partition[at])}{taker} "
            what += f"when {_change_text(change, run)}"
            found.append(_violation(what, *calls(run, change.rows, [change.row]), *calls(run, lost, [at])))
    return found[:MOST]


def _change_text(change: _Change, run: RunInfo) -> str:
    return f"{run.name(change.member)} {'joined' if change.is_join else 'left'}"


def _violation(what: str, *shown: str) -> Violation:
    return Violation(invariant="S18", what=what, calls=tuple(dict.fromkeys(shown)))


INVARIANT = Invariant(
    name="S18",
    says="rebalances <= 2 x membership changes, converged in 1.5 s; other members keep their partitions",
    scope=CheckScope.GROUP,
    check=check,
    about=rows_of("member"),
)
