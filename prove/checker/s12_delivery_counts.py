"""S12: deliveries count 1, 2, 3, …; failures are nacks and expiries while alone, and a message dies at the limit.

A consume of unknown outcome may have leased a message without a recorded delivery: it excuses one missing delivery and
one failure. A message that never failed never dies.

When the database clock jumps, a lease may have expired when it is granted. A server that lost the response to such a
grant leases again for the same call; then a delivery is missing although every call is known.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from prove.checker.enum_codes import VERB
from prove.checker.invariant import DATABASE_CLOCK_JUMPS, MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.lease_history import LeaseHistory, doubt, leases_of
from prove.checker.row_groups import NEVER, Array, some
from prove.checker.row_matching import true_at
from prove.history.tables import Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    leases = leases_of(tables, run)
    counting = _Counting(leases)
    found = _numbers(counting) + _failures(counting) + _limit(counting) + _died(counting)
    return found[:MOST]


class _Counting:
    """Deliveries by message, epoch and number, and which of them count as failures."""

    def __init__(self, leases: LeaseHistory) -> None:
        self.leases = leases
        turn = leases.turns.number
        self.order: Array = np.lexsort((leases.given.number, turn))
        begins = np.ones(len(self.order), np.bool_)
        begins[1:] = turn[self.order[1:]] != turn[self.order[:-1]]
        self.begins = begins
        pairs = true_at(~begins)
        self.before: Array = self.order[pairs - 1]
        self.after: Array = self.order[pairs]
        """Deliveries that follow another delivery of the same message."""
        self.last: Array = self.order[np.append(begins[1:], True)] if len(begins) else self.order
        """The last delivery of each message and epoch."""

    @cached_property
    def nacked(self) -> Array:
        """Return whether a nack of each delivery may have taken effect."""
        said = self.leases.said
        return said.any((said.verb == VERB.NACK) & said.happened)

    @cached_property
    def failed(self) -> Array:
        """Return whether a nack of each delivery certainly counted."""
        said = self.leases.said
        return said.any(self.leases.went_back_first & (said.verb == VERB.NACK) & said.ok)


def _numbers(counting: _Counting) -> list[Violation]:
    leases, given, order = counting.leases, counting.leases.given, counting.order
    number = given.number[order].astype(np.int64)
    gap = number - 1
    later = ~counting.begins
    gap[later] -= number[true_at(later) - 1]
    if not gap.any():
        return []
    missing = np.cumsum(np.maximum(gap, 0))
    start = np.maximum.accumulate(np.where(counting.begins, np.arange(len(order)), 0))
    missing -= (missing - np.maximum(gap, 0))[start]
    explained = leases.unknown_before(given.completed_ns[order]) + _over_at_once(counting, start)
    unexplained = (gap > 0) & (missing > explained)
    found = []
    for row in some((later & (gap < 0)) | unexplained):
        if counting.begins[row]:
            found.append(_violation(leases, f"its first delivery is number {number[row]}", order[row]))
        else:
            twice = f"delivery {number[row]} occurs twice"
            what = twice if gap[row] < 0 else f"number {number[row]} follows number {number[row - 1]}"
            found.append(_violation(leases, what, order[row - 1], order[row]))
    return found


def _over_at_once(counting: _Counting, start: Array) -> Array:
    """Return how many deliveries of the same message so far were granted after a jump of the database clock."""
    leases, order = counting.leases, counting.order
    jumps = [fault.began_ns for fault in leases.run.faults if fault.kind == DATABASE_CLOCK_JUMPS]
    after = (leases.given.completed_ns[order] > min(jumps, default=NEVER)).astype(np.int64)
    so_far = np.cumsum(after)
    return np.asarray(so_far - (so_far - after)[start])


def _failures(counting: _Counting) -> list[Violation]:
    leases, given = counting.leases, counting.leases.given
    first = counting.order[counting.begins]
    more = given.failures[first] > given.number[first] - 1
    found = [
        _violation(leases, f"delivery {given.number[row]} has failed {given.failures[row]} times", row)
        for row in first[some(more)]
    ]
    before, after = counting.before, counting.after
    if not len(before):
        return found
    unseen = np.maximum(0, given.number[after] - given.number[before] - 1)
    expired = leases.alone[before] & (leases.granted_ms[after] >= leases.until_ms[before])
    low = counting.failed[before].astype(np.int64)
    high = (counting.nacked[before] | expired) + unseen
    rise = given.failures[after] - given.failures[before]
    for row in some((rise < low) | (rise > high)):
        ends = f"from {given.failures[before[row]]} to {given.failures[after[row]]}"
        what = f"failures went {ends}; {low[row]} to {high[row]} more were possible"
        found.append(_violation(leases, what, before[row], after[row]))
    return found


def _limit(counting: _Counting) -> list[Violation]:
    leases, given, limit = counting.leases, counting.leases.given, counting.leases.rules.limit
    found = [
        _violation(leases, f"delivered after {given.failures[row]} failures", row)
        for row in some(given.failures >= limit)
    ]
    last = counting.last
    last = last[given.failures[last] + 1 >= limit]
    if len(last):
        due = (leases.epoch[last] == leases.seeks.count) & counting.failed[last] & ~leases.is_dead(given.offset[last])
        found += [_violation(leases, f"failed {limit} times, but has no dead letter", row) for row in last[some(due)]]
    return found


# Dead letters ---------------------------------------------------------------------------------------------------------


def _died(counting: _Counting) -> list[Violation]:
    """Check that each dead letter fits the last delivery of its message in one of the position epochs."""
    leases, letters = counting.leases, counting.leases.letters
    if not len(letters):
        return []
    reasons: list[list[str]] = [[] for _ in range(len(letters))]
    fits = np.zeros(len(letters), np.bool_)
    shown = np.full(len(letters), -1)
    for epoch in range(leases.seeks.count + 1):
        at = leases.turns.find(leases.turn_codes(letters.offset, epoch))
        known = true_at(at >= 0)
        # Groups are in the order of their codes, and so are their last deliveries.
        last = counting.last[at[known]]
        shown[known] = last
        wrong = _unfit(counting, known, last)
        fits[known] |= wrong == ""
        for row in some(wrong != ""):
            reasons[known[row]].append(str(wrong[row]))
    unknown = len(leases.unknown)
    found = []
    for row in some(~fits & ((shown >= 0) | (unknown == 0))):
        if shown[row] < 0:
            found.append(leases.wrong("S12", "a dead letter that was never delivered", offset=letters.offset[row]))
        else:
            found.append(_violation(leases, (reasons[row] or ["its dead letter does not fit"])[-1], shown[row]))
    return found


def _unfit(counting: _Counting, rows: Array, last: Array) -> Array:
    """Return why each of these dead letters cannot result from that last delivery; an empty text if it can."""
    leases, given, said, limit = (
        counting.leases,
        counting.leases.given,
        counting.leases.said,
        counting.leases.rules.limit,
    )
    failures, deliveries = leases.letters.failures[rows], leases.letters.deliveries[rows]
    number = given.number[last]
    fatal = said.any((said.verb == VERB.FAIL) & said.happened)[last]
    unseen = deliveries - number
    failed = counting.nacked[last] | fatal | leases.alone[last]
    possible = given.failures[last] + unseen + failed
    wrong = np.full(len(rows), "", object)
    for row in true_at(possible < failures).tolist():
        wrong[row] = f"died of {failures[row]} failures; it had {possible[row]} at most"
    for row in true_at((unseen < 0) | (unseen > len(leases.unknown))).tolist():
        wrong[row] = f"the dead letter says {deliveries[row]} deliveries; the last was number {number[row]}"
    for row in true_at((failures != limit) & ~fatal).tolist():
        wrong[row] = f"died of {failures[row]} failures; the limit is {limit}"
    return wrong


def _violation(leases: LeaseHistory, what: str, *rows: int) -> Violation:
    calls = [leases.call(leases.given, row) for row in rows]
    what = f"{what} (token {leases.given.token[rows[-1]]}, {leases.owner(rows[-1])})"
    return leases.wrong("S12", what, *calls, offset=leases.given.offset[rows[0]])


INVARIANT = Invariant(
    name="S12",
    says="deliveries count without a gap; failures are nacks and expiries while alone; the limit makes a dead letter",
    scope=CheckScope.LEASE,
    check=check,
    doubt=doubt,
    about=rows_of("delivery"),
)
