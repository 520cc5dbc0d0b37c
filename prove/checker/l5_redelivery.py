"""L5: a message of a dead owner is leased again at most two seconds after its lease ends.

A message whose lease end counts as a failure also waits for its back-off. Only the first message of each key is
checked, because the others wait for it. Time during faults does not count.

The messages of a dead owner are delivered one at a time, each alone. The clock therefore restarts whenever one of them
is leased: the invariant is violated only if none is leased for two seconds although one is due. A lease whose response
was lost shows only in the delivery count of the message's next delivery. If such a lease may lie in these two seconds,
nothing is certain.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lease_history import LeaseHistory, doubt, leases_of
from prove.checker.row_groups import NEVER, Array, some
from prove.history.tables import Tables

GRACE_MS = 2000


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    leases = leases_of(tables, run)
    given = leases.given
    rows = abandoned(leases)
    if not len(rows):
        return []
    again, later = _leased_again(leases, rows)
    late = _waited_ms(leases, again, later) > _grace_ms(run)
    lost = np.setdiff1d(rows, again)
    lost = lost[~leases.is_dead(given.offset[lost])]
    found = [_violation(leases, row, "was never leased again") for row in lost if _may_be_lost(leases)][:MOST]
    for row in some(late):
        after = leases.granted_ms[later[row]] - leases.until_ms[again[row]]
        found.append(_violation(leases, again[row], f"was leased again {after} ms after its lease"))
    return found[:MOST]


def worst(tables: Tables, run: RunInfo) -> float | None:
    """Return the longest time in seconds that a due message waited."""
    leases = leases_of(tables, run)
    waited = _waited_ms(leases, *_leased_again(leases, abandoned(leases)))
    return int(waited.max()) / 1000 if len(waited) else None


def abandoned(leases: LeaseHistory) -> Array:
    """Return the messages that dead owners held without answering: the first of each key."""
    given = leases.given
    if not leases.run.crashed or not len(given):
        return np.zeros(0, np.int64)
    dead = np.isin(given.owner, np.fromiter(leases.run.crashed, np.int64))
    rows = np.flatnonzero(dead & (leases.closed_wall_ms == NEVER) & (leases.epoch == leases.seeks.count))
    return rows[~leases.in_front(rows)[0]] if len(rows) else rows


def _may_be_lost(leases: LeaseHistory) -> bool:
    """Return whether missing messages prove a loss: there was no unknown consume, no expiry and no cut."""
    end, last = leases.samples, leases.last
    return last is not None and not len(leases.unknown) and not (end.expired[last] or end.cut[last])


def _grace_ms(run: RunInfo) -> int:
    return int(run.targets.get("L5_ms", GRACE_MS))


def _leased_again(leases: LeaseHistory, rows: Array) -> tuple[Array, Array]:
    """Return the rows that were leased again, and the next lease of each."""
    later = np.searchsorted(leases.codes, leases.codes[rows], "right")
    again = np.append(leases.given.offset, -1)[later] == leases.given.offset[rows]
    return rows[again], later[again]


def _waited_ms(leases: LeaseHistory, rows: Array, later: Array) -> Array:
    """Return the time from the due time of each message until it was leased again; 0 if nothing is certain."""
    given = leases.given
    due = leases.until_ms[rows].copy()
    for row in np.flatnonzero(leases.alone[rows]).tolist():
        due[row] += leases.rules.max_delay_ms(int(given.failures[rows[row]]) + 1)
    due = np.maximum(due, _last_suspect_ms(leases, later))
    next_ = given.number[later] == given.number[rows] + 1
    waited = np.where(next_, leases.granted_ms[later] - due, 0)
    waited[_maybe_leased(leases, leases.granted_ms[later], _grace_ms(leases.run))] = 0
    for row in np.flatnonzero(waited > 0).tolist():
        waited[row] -= _faulty_ms(leases, int(due[row]), int(later[row]))
    return np.maximum(waited, 0)


def _last_suspect_ms(leases: LeaseHistory, rows: Array) -> Array:
    """Return the time of the last suspect lease before each given lease; 0 if there was none."""
    times = np.sort(leases.granted_ms[leases.given.suspect])
    return np.append(times, 0)[np.searchsorted(times, leases.granted_ms[rows]) - 1]


def _maybe_leased(leases: LeaseHistory, at_ms: Array, grace: int) -> Array:
    """Return whether there may be an unrecorded lease in the grace time before each given lease."""
    given = leases.given
    same = given.offset[1:] == given.offset[:-1]
    hidden = same & (given.number[1:] > given.number[:-1] + 1) & (leases.closed_wall_ms[:-1] == NEVER)
    before, after = leases.granted_ms[:-1][hidden], leases.granted_ms[1:][hidden]
    found = np.zeros(len(at_ms), np.bool_)
    for begin, end in zip(before.tolist(), after.tolist(), strict=True):
        found |= (begin < at_ms) & (end > at_ms - grace)
    return found


def _faulty_ms(leases: LeaseHistory, due_ms: int, later: int) -> int:
    """Return how long faults lasted between the due time and the next lease."""
    given = leases.given
    # Convert between the clocks of the database and the machine with a call that recorded both.
    apart_ns = int(given.completed_ns[later]) - int(given.completed_wall_ms[later]) * 1_000_000
    now = due_ms * 1_000_000 + apart_ns
    end = int(leases.granted_ms[later]) * 1_000_000 + apart_ns
    stood = 0
    for fault in sorted(leases.run.faults, key=lambda each: each.began_ns):
        began, ended = max(fault.began_ns, now), min(fault.ended_ns, end)
        if ended > began:
            stood += ended - began
            now = ended
    return -(-stood // 1_000_000)


def _violation(leases: LeaseHistory, row: int, what: str) -> Violation:
    given = leases.given
    what = f"the dead owner {leases.owner(row)} held it with token {given.token[row]}; it {what}"
    return leases.wrong("L5", what, leases.call(given, row), offset=given.offset[row])


INVARIANT = Invariant(
    name="L5",
    says="a message of a dead owner is leased again at most two seconds after its lease ends",
    scope=CheckScope.LEASE,
    check=check,
    doubt=doubt,
    worst=worst,
)
