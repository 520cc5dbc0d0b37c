"""S18: few rebalances, soon over, and only for those whom they concern.

A rebalance is what a join, a leave, the end of a session or a change of the topics causes; each causes two at most. A
session that is over is seen only by what its member says next, so that a member that is not there at the end, or joins
again, counts as gone once. In a cursor group a partition that was given up makes a generation of its own: those do not
count. How soon it is over, and whom it concerned, is asked of changes that are alone: no other one near, no fault, and
everybody else there before and after.
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
"""So long after one change, or a fault, the next one is not judged."""
WATCHED_NS = 30 * SECOND
SESSION_NS = 60 * SECOND
"""Who has said nothing for so long is gone."""
JUDGED = 200
"""So many changes that are alone are looked at: one that is wrong is enough."""


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["member"]
    if not len(rows):
        return []
    found = _too_many(rows, tables["sample"], run)
    news = _news(rows)
    for change in _alone(rows, tables["call"], run):
        told = news.where((news.completed_ns > change.began_ns) & (news.completed_ns <= change.until_ns))
        found += _late(change, told, tables["call"], run)
        found += _disturbed(change, told, run)
        if len(found) >= MOST:
            break
    return found[:MOST]


# How many -------------------------------------------------------------------------------------------------------------


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
    """Joins and ends: a member that joined n times has ended n - 1 times, and once more if it is not there now."""
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
    """How often a topic may have got more partitions: a higher one was assigned than in the generations before."""
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


# Those that are alone -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A join or leave with nothing near it, up to `until_ns`."""

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
    # An unknown one may come to pass later than anybody waits for it.
    over = np.where(changes.outcome == OUTCOME.OK, changes.completed_ns, changes.invoked_ns + SETTLED_NS)
    before = np.append(-SETTLED_NS, np.maximum.accumulate(over)[:-1])
    after = np.append(changes.invoked_ns[1:], np.iinfo(np.int64).max)
    alone = (changes.outcome == OUTCOME.OK) & (changes.invoked_ns - before > SETTLED_NS)
    lives = _lives(rows, asks)
    for row in true_at(alone)[:JUDGED].tolist():
        done = int(changes.completed_ns[row])
        until = min(int(after[row]), done + WATCHED_NS)
        change = _Change(row=row, rows=changes, began_ns=int(changes.invoked_ns[row]), done_ns=done, until_ns=until)
        if not has_fault(run, change.began_ns - SETTLED_NS, until) and _all_there(change, lives):
            yield change


def _lives(rows: TableColumns, asks: TableColumns) -> list[tuple[int, Array, Array]]:
    """Each member with the times at which it showed that it was one, and whether it joined then."""
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
    """Whether all that were there before, and who joined, are afterwards, without having joined again."""
    for member, at, joins in lives:
        before = int(np.searchsorted(at, change.done_ns, "right")) - 1
        if before < 0 or at[before] < change.began_ns - SESSION_NS or (member == change.member and not change.is_join):
            continue
        after = int(np.searchsorted(at, change.until_ns, "right"))
        if after == len(at) or joins[after]:
            return False
    return True


def _news(rows: TableColumns) -> TableColumns:
    """What members heard for the first time: that they own a partition, or do not any more."""
    heard = rows.where(
        (rows.outcome == OUTCOME.OK) & np.isin(rows.event, (MemberEvent.ASSIGNED, MemberEvent.REVOKED))
    ).sorted_by("member", "topic", "partition", "completed_ns", "counter")
    fresh = np.ones(len(heard), np.bool_)
    if len(heard):
        fresh[1:] = differs(heard.member, heard.topic, heard.partition, heard.event)
    return heard.where(fresh).sorted_by("completed_ns")


# How they went --------------------------------------------------------------------------------------------------------


def _late(change: _Change, told: TableColumns, asks: TableColumns, run: RunInfo) -> list[Violation]:
    """Who waited in a poll when it happened hears of it in time; what it does between its calls is its own time."""
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
            what = f"{run.name(told.member[at])} waited, and heard of {run.name(told.topic[at])}/"
            what += f"{int(told.partition[at])} {took // MS} ms after {_said(change, run)}"
            found.append(_violation(what, *calls(run, change.rows, [change.row]), *calls(run, told, [at])))
    return found[:MOST]


def _disturbed(change: _Change, told: TableColumns, run: RunInfo) -> list[Violation]:
    """Nobody loses a partition because another one leaves, nor to anybody but who joined."""
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
            what += f"when {_said(change, run)}"
            found.append(_violation(what, *calls(run, change.rows, [change.row]), *calls(run, lost, [at])))
    return found[:MOST]


def _said(change: _Change, run: RunInfo) -> str:
    return f"{run.name(change.member)} {'joined' if change.is_join else 'left'}"


def _violation(what: str, *shown: str) -> Violation:
    return Violation(invariant="S18", what=what, calls=tuple(dict.fromkeys(shown)))


INVARIANT = Invariant(
    name="S18",
    says="rebalances <= 2 x membership changes, converged in 1.5 s; members not involved keep their partitions",
    scope=CheckScope.GROUP,
    check=check,
    about=rows_of("member"),
)
