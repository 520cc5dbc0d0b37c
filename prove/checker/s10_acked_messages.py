"""S10: after an accepted ack or discard the group gets no delivery of the message in the same position epoch.

The same holds after its death. A redrive publishes another message, so this also holds for redriven messages.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.lease_history import FINISHING, LeaseHistory, doubt, leases_of
from prove.checker.row_groups import NEVER, Array, some
from prove.checker.row_matching import true_at
from prove.history.tables import OwnerVerb, Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    leases = leases_of(tables, run)
    said, given, turns = leases.said, leases.given, leases.turns
    if not len(said) or not len(given):
        return []
    done = said.least(said.ok & (FINISHING[said.verb] | said.dead), said.completed_ns)
    token, asked = turns.most(given.token), turns.most(given.invoked_ns)
    if len(leases.again):
        at, inside = _again(leases)
        np.maximum.at(token, at[inside], leases.again.token[inside])
        np.maximum.at(asked, at[inside], leases.again.invoked_ns[inside])
    after = (token[turns.number] > given.token) | (asked[turns.number] > done)
    return [_violation(leases, row, int(done[row])) for row in some((done != NEVER) & after)][:MOST]


def _again(leases: LeaseHistory) -> tuple[Array, Array]:
    """Return the message and epoch of each repeated delivery, and whether that message exists."""
    epochs = leases.seeks.before(leases.again.invoked_ns)
    at = leases.turns.find(leases.turn_codes(leases.again.offset, epochs))
    return at, at >= 0


def _violation(leases: LeaseHistory, row: int, done: int) -> Violation:
    said, given = leases.said, leases.given
    answers = (said.delivery == row) & said.ok & (said.completed_ns == done) & (FINISHING[said.verb] | said.dead)
    answer = int(true_at(answers)[0]) if answers.any() else -1
    calls = [leases.call(said, answer)] if answer >= 0 else []
    verb = OwnerVerb(said.verb[answer]).name.lower() if answer >= 0 else "its end"
    what = f"{verb} by {leases.owner(row)} with token {given.token[row]} was accepted"
    for rows, epochs in ((given, leases.epoch), (leases.again, leases.seeks.before(leases.again.invoked_ns))):
        same = (rows.offset == given.offset[row]) & (epochs == leases.epoch[row])
        after = true_at(same & ((rows.token > given.token[row]) | (rows.invoked_ns > done)))
        if len(after):
            other = int(after[0])
            what += f", and {leases.run.name(rows.owner[other])} got it with token {rows.token[other]}"
            calls.append(leases.call(rows, other))
            break
    return leases.wrong("S10", what, *calls, offset=given.offset[row])


INVARIANT = Invariant(
    name="S10",
    says="after an accepted ack a message is not delivered again in the same position epoch",
    scope=CheckScope.LEASE,
    check=check,
    doubt=doubt,
    about=rows_of("delivery"),
)
