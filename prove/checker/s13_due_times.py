"""S13: no message is delivered before it is due. A nack, and a release with a delay, set the due time.

The back-off after the end of a lease that held one message alone also sets it.
"""

from __future__ import annotations

import numpy as np

from prove.checker.enum_codes import VERB
from prove.checker.invariant import CheckScope, GroupRules, Invariant, RunInfo, Violation, rows_of
from prove.checker.lease_history import LeaseHistory, doubt, leases_of
from prove.checker.row_groups import NEVER, Array, some
from prove.checker.row_matching import true_at
from prove.history.tables import Tables

CLOCK_SLACK_MS = 50
"""The tolerance: a server's estimate of the database time may lag by the response time of a call. It is never ahead."""


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    leases = leases_of(tables, run)
    given = leases.given
    before = true_at((given.offset[1:] == given.offset[:-1]) & (leases.epoch[1:] == leases.epoch[:-1]))
    if not len(before):
        return []
    after = before + 1
    due = np.maximum(_answered_due_ms(leases)[before], _backed_off_ms(leases, before, after))
    granted = leases.granted_ms[after]
    found = []
    for row in some(granted < due - CLOCK_SLACK_MS - leases.clock_ms):
        first, second = int(before[row]), int(after[row])
        owner = leases.owner(second)
        what = f"due at {due[row]}, delivered to {owner} with token {given.token[second]} at {granted[row]}"
        calls = leases.call(given, first), leases.call(given, second)
        found.append(leases.wrong("S13", what, *calls, offset=given.offset[first]))
    return found


def _answered_due_ms(leases: LeaseHistory) -> Array:
    """Return, for each delivery, the earliest due time that its answers allow; 0 if there may have been none."""
    said = leases.said
    nack = said.verb == VERB.NACK
    chosen = true_at(said.happened & (nack | (said.verb == VERB.RELEASE)) & (said.delivery >= 0))
    due = np.full(len(said), NEVER)
    # A delay of -1 means that the group's retry policy sets the delay.
    policy = _least_delays(leases.rules, leases.given.failures[said.delivery[chosen]] + 1)
    delay = np.where(said.delay_ms[chosen] >= 0, said.delay_ms[chosen], np.where(nack[chosen], policy, 0))
    due[chosen] = said.invoked_wall_ms[chosen] + delay
    sure = np.zeros(len(said), np.bool_)
    sure[chosen] = said.ok[chosen] & leases.went_back_first[chosen]
    return np.where(said.any(sure), said.least(due != NEVER, due), 0)


def _backed_off_ms(leases: LeaseHistory, before: Array, after: Array) -> Array:
    """Return the earliest due time of messages that failed only by the end of their lease; 0 for the others."""
    given = leases.given
    due = np.zeros(len(before), np.int64)
    next_ = (given.number[after] == given.number[before] + 1) & (given.failures[after] == given.failures[before] + 1)
    rows = true_at(next_ & leases.alone[before] & (leases.closed_wall_ms[before] == NEVER))
    due[rows] = leases.until_ms[before[rows]] + _least_delays(leases.rules, given.failures[before[rows]] + 1)
    return due


def _least_delays(rules: GroupRules, failures: Array) -> Array:
    distinct, at = np.unique(failures, return_inverse=True)
    return np.array([rules.min_delay_ms(int(number)) for number in distinct], np.int64)[at]


INVARIANT = Invariant(
    name="S13",
    says="no message is delivered before it is due",
    scope=CheckScope.LEASE,
    check=check,
    doubt=doubt,
    about=rows_of("delivery"),
)
