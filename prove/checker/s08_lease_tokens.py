"""S8: lease tokens of a message strictly rise, and no two leases are valid at the same database time.

A lease that was certainly not answered is valid until its expiry. A lease that may have been answered can have ended
when the answer was sent.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.lease_history import LeaseHistory, doubt, leases_of
from prove.checker.row_groups import NEVER, Array, some
from prove.checker.row_matching import true_at
from prove.history.tables import Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    leases = leases_of(tables, run)
    given = leases.given
    first = true_at(given.offset[1:] == given.offset[:-1])
    if not len(first):
        return []
    second = first + 1
    same_epoch = leases.epoch[first] == leases.epoch[second]
    twice = given.token[first] == given.token[second]
    number = same_epoch & (given.number[first] >= given.number[second])
    early = given.completed_ns[second] < given.invoked_ns[first]
    over = _over_ms(leases, first, second)
    # A seek ends all leases.
    overlap = same_epoch & ((leases.granted_ms[second] < over[0]) | (given.completed_wall_ms[second] < over[1]))
    wrong = some(twice | number | early | overlap)
    return [_violation(leases, int(first[row]), (over[0][row], over[1][row])) for row in wrong]


def _over_ms(leases: LeaseHistory, first: Array, second: Array) -> tuple[Array, Array]:
    """Return the earliest end of the first lease, to compare with the second grant (0 for none) and its response."""
    until, closed = leases.until_ms[first], leases.closed_wall_ms[first]
    over = np.where(closed == NEVER, until, np.minimum(until, closed))
    suspicious = true_at(np.minimum(leases.granted_ms[second], leases.given.completed_wall_ms[second]) < over)
    if len(suspicious):
        # It may have gone back together with an earlier message of its key.
        closed[suspicious] = np.minimum(closed[suspicious], leases.in_front(first[suspicious])[1])
        over = np.minimum(until, closed)
    open_ = closed == NEVER
    return np.where(open_, until, 0), over - leases.clock_ms


def _violation(leases: LeaseHistory, first: int, over: tuple[int, int]) -> Violation:
    given, second = leases.given, first + 1
    before, after = leases.owner(first), leases.owner(second)
    tokens, numbers = given.token[[first, second]], given.number[[first, second]]
    same_epoch = leases.epoch[first] == leases.epoch[second]
    if tokens[0] == tokens[1]:
        what = f"two owners have token {tokens[0]}: {before} and {after}"
    elif same_epoch and numbers[0] >= numbers[1]:
        what = f"delivery {numbers[1]} has token {tokens[1]}, delivery {numbers[0]} has {tokens[0]}"
    elif given.completed_ns[second] < given.invoked_ns[first]:
        what = f"token {tokens[0]} was given after token {tokens[1]}"
    elif leases.granted_ms[second] < over[0]:
        what = (
            f"{before} holds it with token {tokens[0]} until {over[0]}, {after} got it at {leases.granted_ms[second]}"
        )
    else:
        told = given.completed_wall_ms[second]
        what = f"{before} holds it with token {tokens[0]} until {over[1]} at least, {after} received it at {told}"
    calls = leases.call(given, first), leases.call(given, second)
    return leases.wrong("S8", what, *calls, offset=given.offset[first])


INVARIANT = Invariant(
    name="S8",
    says="lease tokens of a message rise, and no two leases are valid at the same time",
    scope=CheckScope.LEASE,
    check=check,
    doubt=doubt,
    about=rows_of("delivery"),
)
