"""S15: key order: a message is never delivered while an earlier message of the same key is open or waiting.

Both may be in the same lease: the owner processes them in sequence. A dead letter frees its key.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.lease_history import LeaseHistory, doubt, leases_of
from prove.checker.row_groups import NEVER, Array, looked_up, some
from prove.checker.row_matching import found_at, true_at
from prove.history.tables import Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    leases = leases_of(tables, run)
    given, turns = leases.given, leases.turns
    rows, front = _behind(leases)
    if not len(rows):
        return []
    at = turns.find(leases.turn_codes(front, leases.epoch[rows]))
    again = looked_up(turns.most(given.token), at, -1) > given.token[rows]
    finished = looked_up(turns.least(leases.finished_ns), at, NEVER)
    early = (finished >= given.completed_ns[rows]) & ~leases.is_dead(front)
    if _passed(leases, "expired", "cut"):
        # A message without an answer may have ended by itself; S11 counts these.
        early &= finished != NEVER
    beside = leases.in_lease_with(rows, front)
    together = (beside >= 0) & (leases.epoch[beside] == leases.epoch[rows])
    wrong = some((again | early) & ~together)
    return [_violation(leases, int(rows[row]), int(front[row]), again=bool(again[row])) for row in wrong]


def _behind(leases: LeaseHistory) -> tuple[Array, Array]:
    """Return the deliveries of messages that have an earlier message of their key, and its offset."""
    given = leases.given
    keys = leases.keys_of(leases.offsets)[0]
    offsets, keys = leases.offsets[keys != 0], keys[keys != 0]
    if _passed(leases, "filtered", "expired", "cut"):
        # A message that was never delivered may not concern the group.
        delivered = leases.messages.find(offsets) >= 0
        offsets, keys = offsets[delivered], keys[delivered]
    order = np.argsort(keys, kind="stable")
    same = keys[order[1:]] == keys[order[:-1]]
    front = np.full(len(offsets), -1)
    front[order[1:][same]] = offsets[order[:-1][same]]
    before = looked_up(front, found_at(offsets, given.offset), -1)
    rows = true_at((before >= 0) & (before >= _starts(leases)[leases.epoch]))
    return rows, before[rows]


def _starts(leases: LeaseHistory) -> Array:
    """Return the start position of each epoch. Messages before it do not concern the group."""
    samples, count = leases.samples, leases.seeks.count
    if not count:
        return np.full(1, samples.start[-1] if len(samples) else 0)
    starts = np.full(count + 1, NEVER)
    np.minimum.at(starts, leases.epoch, leases.given.offset)
    known = true_at(samples.epoch <= count)
    starts[samples.epoch[known]] = samples.start[known]
    return starts


def _passed(leases: LeaseHistory, *names: str) -> bool:
    return any(getattr(leases.samples, name).any() for name in names)


def _violation(leases: LeaseHistory, row: int, front: int, *, again: bool) -> Violation:
    given, owner = leases.given, leases.owner(row)
    what = f"it was delivered to {owner} with token {given.token[row]}"
    if again:
        later = true_at((given.offset == front) & (given.token > given.token[row]))
        what += f", and {front}, before it in its key, to {leases.owner(later[0])} afterwards"
    else:
        what += f" before {front}, before it in its key, was finished"
    return leases.wrong("S15", what, leases.call(given, row), offset=given.offset[row])


INVARIANT = Invariant(
    name="S15",
    says="a message is never delivered while an earlier message of its key is open or waiting",
    scope=CheckScope.LEASE,
    check=check,
    doubt=doubt,
    about=rows_of("delivery"),
)
