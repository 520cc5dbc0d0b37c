"""S9: an answer with a stale token, from another owner or after the end of the lease is refused and changes nothing.

A repeated answer gets the first response again, even after the lease is closed, but not after a seek. An accepted ack
is never refused later: its owner would assume that the message belongs to another owner. The effect of a refused nack
would show in the failures (S12).
"""

from __future__ import annotations

import numpy as np

from prove.checker.enum_codes import OUTCOME
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.lease_history import FINISHING, RETURNING, SETTLING, LeaseHistory, doubt, leases_of
from prove.checker.row_groups import NEVER, Array, RowGroups, looked_up, running_least, some
from prove.checker.row_matching import mixed, true_at
from prove.history.tables import OwnerVerb, Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    leases = leases_of(tables, run)
    return (_accepted(leases) + _extended(leases) + _refused(leases) + _denied(leases))[:MOST]


# Answers that were accepted -------------------------------------------------------------------------------------------


def _accepted(leases: LeaseHistory) -> list[Violation]:
    said, given = leases.said, leases.given
    ok = said.ok
    unknown = true_at(ok & (said.delivery < 0))
    lost = unknown[~np.isin(said.owner[unknown], leases.unknown.owner)] if len(unknown) else unknown
    found = [_violation(leases, row, "with a token that its owner never received") for row in lost[:MOST].tolist()]
    rows = true_at(ok & (said.delivery >= 0))
    if not len(rows):
        return found
    delivery = said.delivery[rows]
    other = given.owner[delivery] != said.owner[rows]
    sought = leases.seeks.between(given.invoked_ns[delivery], said.invoked_ns[rows])
    late = said.invoked_wall_ms[rows] - leases.clock_ms > leases.latest_ms[delivery]
    stale = _overtaken_ns(leases)[rows] < said.invoked_ns[rows]
    over = late | stale
    if over.any():
        over &= ~_repeated(leases)[rows]
        over[over] &= ~_went_back(leases, rows[over])
    for row in some(other | sought | over):
        held = leases.owner(delivery[row])
        if other[row]:
            why = f"of the lease of {held}"
        elif sought[row]:
            why = "of a lease from before a seek"
        elif stale[row]:
            why = "although the message had been leased again"
        else:
            why = "after the lease's end"
        found.append(_violation(leases, int(rows[row]), why))
    return found


def _overtaken_ns(leases: LeaseHistory) -> Array:
    """Return, for each answer, when a later lease of the message was first observed."""
    said, given = leases.said, leases.given
    begins = np.ones(len(given), np.bool_)
    begins[1:] = given.offset[1:] != given.offset[:-1]
    if begins.all():
        return np.full(len(said), NEVER)
    # From the last delivery of each message to its first.
    ends = np.append(begins[1:], True)
    told = np.append(running_least(given.completed_ns[::-1], ends[::-1])[::-1], NEVER)
    same = np.append(given.offset, -1)[said.overtaken_by] == said.offset
    return np.where(same, told[said.overtaken_by], NEVER)


def _repeated(leases: LeaseHistory) -> Array:
    """Return whether the same answer may have been given before."""
    said = leases.said
    alike = RowGroups(said.leases.number * len(OwnerVerb) + said.verb)
    place = np.arange(len(said))
    first = alike.least(np.where(said.happened, place, NEVER))
    return np.asarray(first[alike.number] < place)


def _went_back(leases: LeaseHistory, rows: Array) -> Array:
    """Return whether each answer may be a repeat, because an earlier message of its key was given back."""
    said = leases.said
    behind, back_ms = leases.in_front(said.delivery[rows])
    return np.asarray(RETURNING[said.verb[rows]] & behind & (back_ms < said.invoked_wall_ms[rows]))


def _violation(leases: LeaseHistory, row: int, why: str) -> Violation:
    said = leases.said
    verb, owner = OwnerVerb(said.verb[row]).name.lower(), leases.run.name(said.owner[row])
    what = f"{verb} by {owner} with token {said.token[row]} was accepted, {why}"
    return leases.wrong("S9", what, leases.call(said, row), offset=said.offset[row])


# Extends that were accepted -------------------------------------------------------------------------------------------


def _extended(leases: LeaseHistory) -> list[Violation]:
    extends, given = leases.extends, leases.given
    if not extends.ok.any() or not len(given):
        return []
    held = true_at(extends.at >= 0)
    first = np.full(len(extends.leases), -1)
    # The first of several is written last.
    early = held[np.lexsort((-given.offset[held], -given.invoked_ns[held]))]
    first[extends.at[early]] = early
    delivery = first[extends.leases.number]
    begins = np.ones(len(extends), np.bool_)
    begins[1:] = extends.token[1:] != extends.token[:-1]
    until = np.maximum(given.expires_ms[delivery], -_before(np.where(extends.ok, -extends.expires_ms, 0), begins))
    unsure = _before(np.where(extends.happened & ~extends.ok, -1, 0), begins) < 0
    other = given.owner[delivery] != extends.owner
    late = extends.invoked_wall_ms - leases.clock_ms > until
    sought = leases.seeks.between(given.invoked_ns[delivery], extends.invoked_ns)
    found = []
    for row in some(extends.ok & (delivery >= 0) & ~unsure & (other | late | sought)):
        why = "of the lease of " + leases.owner(delivery[row]) if other[row] else "after the lease's end"
        why = why if other[row] or late[row] else "of a lease from before a seek"
        what = f"extend by {leases.run.name(extends.owner[row])} of token {extends.token[row]} was accepted, {why}"
        found.append(leases.wrong("S9", what, leases.call(extends, row), offset=given.offset[delivery[row]]))
    return found


def _before(values: Array, begins: Array) -> Array:
    """Return the smallest earlier value in the same run of rows, or 0."""
    least = np.zeros(len(values), np.int64)
    least[1:] = running_least(values, begins)[:-1]
    least[begins] = 0
    return least


# Answers that were refused --------------------------------------------------------------------------------------------


def _refused(leases: LeaseHistory) -> list[Violation]:
    """Return messages that only a refused ack can have finished."""
    said, last = leases.said, leases.last
    rows = true_at((said.outcome == OUTCOME.FAIL) & ~said.happened & FINISHING[said.verb] & (said.delivery >= 0))
    if not len(rows) or last is None:
        return []
    rows = rows[leases.epoch[said.delivery[rows]] == leases.seeks.count]
    turns = leases.turns.find(leases.turn_codes(said.offset[rows], leases.seeks.count))
    open_ = looked_up(leases.turns.least(leases.finished_ns), turns, NEVER) == NEVER
    rows = rows[open_ & ~leases.is_dead(said.offset[rows])]
    end = leases.samples
    if _finished(leases, last) < end.high_watermark[last]:
        rows = rows[said.offset[rows] < end.committed[last]]
    offsets, first = np.unique(said.offset[rows], return_index=True)
    # Messages that expire or are cut end without an answer.
    if len(offsets) <= end.expired[last] + end.cut[last]:
        return []
    return [
        leases.wrong("S9", "a refused ack finished it", leases.call(said, row), offset=said.offset[row])
        for row in rows[first[:MOST]].tolist()
    ]


def _denied(leases: LeaseHistory) -> list[Violation]:
    """Return acks and discards that were refused although the same answer of the same owner had been accepted."""
    said = leases.said
    refused = (said.outcome == OUTCOME.FAIL) & (said.completed_ns != 0) & SETTLING[said.verb] & (said.delivery >= 0)
    if not refused.any() or leases.seeks.count:
        return []
    own = looked_up(leases.given.owner, said.delivery, 0) == said.owner
    alike = RowGroups(said.leases.number * len(OwnerVerb) + said.verb)
    accepted_ns = alike.least(np.where(said.ok & own, said.completed_ns, NEVER))[alike.number]
    denied = refused & own & (accepted_ns < said.invoked_ns)
    # A call is refused as a whole, so one of its other messages may be the reason.
    calls = RowGroups(mixed(said.process, said.counter))
    denied &= ~calls.any(refused & ~denied)[calls.number]
    return [
        leases.wrong(
            "S9",
            f"{OwnerVerb(said.verb[row]).name.lower()} by {leases.run.name(said.owner[row])} "
            f"with token {said.token[row]} "
            "was refused, although it had been accepted before",
            leases.call(said, row),
            offset=said.offset[row],
        )
        for row in some(denied)
    ]


def _finished(leases: LeaseHistory, row: int) -> int:
    names = ("acked", "dead", "discarded", "filtered", "expired", "cut")
    return sum(int(getattr(leases.samples, name)[row]) for name in names)


INVARIANT = Invariant(
    name="S9",
    says="an answer with a stale token, by another owner or after the lease's end is refused, and changes nothing; "
    "what was accepted is never refused later",
    scope=CheckScope.LEASE,
    check=check,
    doubt=doubt,
    about=rows_of("delivery"),
)
