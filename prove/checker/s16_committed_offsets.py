"""S16: the committed offset is the end of the contiguous finished prefix, and never falls within a position epoch.

Every message below the committed offset may be finished; the message at it is not certainly finished. Samples are taken
while the group works.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lease_history import LeaseHistory, doubt, leases_of
from prove.checker.row_groups import NEVER, Array, RowGroups, looked_up, paired, some
from prove.checker.row_matching import true_at
from prove.history.tables import Tables

_END = NEVER - 1


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    leases = leases_of(tables, run)
    if not len(leases.samples):
        return []
    return (_falls(leases) + _prefixes(leases))[:MOST]


# It never falls -------------------------------------------------------------------------------------------------------


def _falls(leases: LeaseHistory) -> list[Violation]:
    """Compare each sample with the highest committed offset that was known before it was requested."""
    samples = leases.samples
    if len(samples) < 2:
        return []
    height, _ = paired(samples.epoch, np.maximum(samples.committed, 0))
    asked, told = _times(leases)
    order = np.argsort(told, kind="stable")
    best = np.maximum.accumulate(height[order])
    known = np.searchsorted(told[order], asked)
    before = np.append(best, -1)[known - 1]
    found = []
    for row in some((known > 0) & (before > height)):
        first = int(order[true_at(height[order] == before[row])[0]])
        ends = f"from {samples.committed[first]} to {samples.committed[row]}"
        what = f"committed went {ends}, epoch from {samples.epoch[first]} to {samples.epoch[row]}"
        found.append(leases.wrong("S16", what, *_calls(leases, first), *_calls(leases, row)))
    return found


def _times(leases: LeaseHistory) -> tuple[Array, Array]:
    """Return the request and response times of each sample; the final sample comes last."""
    samples = leases.samples
    return np.where(samples.final, _END, samples.invoked_ns), np.where(samples.final, _END, samples.completed_ns)


# It is the finished prefix --------------------------------------------------------------------------------------------


def _prefixes(leases: LeaseHistory) -> list[Violation]:
    samples = leases.samples
    found = []
    epochs = samples.epoch if leases.seeks.count else np.zeros(len(samples), np.int64)
    for epoch in np.unique(epochs).tolist():
        mine = true_at(epochs == epoch)
        for start in np.unique(samples.start[mine]).tolist():
            found += _judge(leases, mine[samples.start[mine] == start], _Prefix(leases, epoch, start))
    return found


class _Prefix:
    """The messages of one epoch from its start: when each may have been finished, and when it certainly was."""

    def __init__(self, leases: LeaseHistory, epoch: int, start: int) -> None:
        given = leases.given
        self.offsets: Array = leases.all_offsets[leases.all_offsets >= start]
        chosen = true_at(leases.epoch == epoch) if leases.seeks.count else np.arange(len(given))
        messages = RowGroups(given.offset[chosen])
        at = messages.find(self.offsets)
        self.finished_ns = looked_up(messages.least(leases.finished_ns[chosen]), at, NEVER)
        self.ended_ns = looked_up(messages.least(leases.ended_ns[chosen]), at, NEVER)
        dead = true_at(leases.is_dead(self.offsets))
        if len(dead):
            told = leases.messages.find(self.offsets[dead])
            told_ns = looked_up(leases.messages.least(given.completed_ns), told, 0)
            self.finished_ns[dead] = np.minimum(self.finished_ns[dead], told_ns)
        open_ = self.finished_ns == NEVER
        self.holes: Array = np.append(0, np.cumsum(open_))
        """For each message, the number of earlier messages that are never finished."""
        self.since_ns: Array = np.append(0, np.maximum.accumulate(np.where(open_, 0, self.finished_ns)))
        """For each message, the time from which all other earlier messages may have been finished."""


def _judge(leases: LeaseHistory, rows: Array, prefix: _Prefix) -> list[Violation]:
    samples = leases.samples
    asked, told = (times[rows] for times in _times(leases))
    committed, start = samples.committed[rows], samples.start[rows]
    passed = (samples.filtered + samples.expired + samples.cut)[rows]
    at = np.searchsorted(prefix.offsets, committed)
    # Messages that retention removed before their first delivery are not among these.
    holes = prefix.holes[at] + np.maximum(0, committed - start - at)
    below = committed < start
    beyond = ~below & (holes > passed)
    for row in true_at(~below & ~beyond & (prefix.since_ns[at] > told)).tolist():
        # A message that is finished later was passed over, or not finished yet. The number of passed messages is known.
        late = passed[row] == 0 or holes[row] + _late(prefix, int(at[row]), int(told[row])) > passed[row]
        beyond[row] = late
    ended = np.append(prefix.ended_ns, NEVER)[at] < asked
    behind = ended & (np.append(prefix.offsets, -1)[at] == committed) & ~below
    found = []
    for row in some(below | beyond | behind):
        what = f"committed {committed[row]}"
        if below[row]:
            what += f" is below its start, {start[row]}"
        elif beyond[row]:
            what += ", and not everything below it is finished"
        else:
            what += " is at a message that is finished"
        found.append(leases.wrong("S16", what, *_calls(leases, int(rows[row])), offset=committed[row]))
    return found


def _late(prefix: _Prefix, at: int, told: int) -> int:
    times = prefix.finished_ns[:at]
    return int(((times > told) & (times != NEVER)).sum())


def _calls(leases: LeaseHistory, row: int) -> tuple[str, ...]:
    return () if leases.samples.final[row] else (leases.call(leases.samples, row),)


INVARIANT = Invariant(
    name="S16",
    says="the committed offset is the end of the finished prefix, and never falls within a position epoch",
    scope=CheckScope.LEASE,
    check=check,
    doubt=doubt,
)
