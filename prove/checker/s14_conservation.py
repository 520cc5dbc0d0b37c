"""S14: conservation: at any time, every message that a group has considered is finished, leased, waiting or skipped.

A message that died has a dead letter. A redrive moves each dead letter once, and keeps its key and its bytes.
"""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lease_history import LeaseHistory, doubt, leases_of
from prove.checker.row_groups import looked_up, some
from prove.checker.row_matching import found_at, true_at
from prove.history.tables import Tables

_PARTS = ("acked", "dead", "discarded", "filtered", "expired", "cut", "leased", "waiting", "skipped")


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    leases = leases_of(tables, run)
    return (_sums(leases) + _published(leases) + _letters(leases) + _redriven(leases))[:MOST]


def _sums(leases: LeaseHistory) -> list[Violation]:
    samples = leases.samples
    if not len(samples):
        return []
    parts = [getattr(samples, name) for name in _PARTS]
    fits = np.sum(parts, axis=0) == samples.frontier - samples.start
    ordered = (samples.committed <= samples.frontier) & (samples.frontier <= samples.high_watermark)
    found = []
    for row in some(~(fits & ordered)):
        told = ", ".join(f"{part[row]} {name}" for name, part in zip(_PARTS, parts, strict=True) if part[row])
        ends = f"from {samples.start[row]}, committed {samples.committed[row]}, frontier {samples.frontier[row]}"
        what = f"the states do not add up to the considered messages: {told}; {ends} of {samples.high_watermark[row]}"
        calls = () if samples.final[row] else (leases.call(samples, row),)
        found.append(leases.wrong("S14", what, *calls))
    return found


def _published(leases: LeaseHistory) -> list[Violation]:
    if leases.last is None:
        return []
    # Messages that retention removed cannot be read any more.
    there = leases.cut_end + int((leases.offsets >= leases.cut_end).sum())
    high = int(leases.samples.high_watermark[leases.last])
    return [] if high == there else [leases.wrong("S14", f"{there} were published, {high} are there")]


def _letters(leases: LeaseHistory) -> list[Violation]:
    """Check that each dead message has a dead letter: both are written in one step."""
    if leases.last is None or leases.seeks.count:
        # The group counts from the last seek.
        return []
    counted, there = int(leases.samples.dead[leases.last]), len(np.unique(leases.letters.offset))
    return [leases.wrong("S14", f"{counted} died, but there are {there} dead letters")] if counted > there else []


# Redrive --------------------------------------------------------------------------------------------------------------


def _redriven(leases: LeaseHistory) -> list[Violation]:
    letters = leases.letters
    moved = true_at(letters.redriven > 0)
    if not len(moved):
        return []
    found = []
    offset = letters.offset[moved]
    for row in some(letters.redriven[moved] > 1):
        times = int(letters.redriven[moved[row]])
        found.append(leases.wrong("S14", f"its dead letter was redriven {times} times", offset=offset[row]))
    copies = np.stack([letters.copy_topic[moved], letters.copy_partition[moved], letters.copy_offset[moved]])
    _, number, shared = np.unique(copies, axis=1, return_inverse=True, return_counts=True)
    for row in some(shared[number.ravel()] > 1):
        copy = int(copies[2, row])
        found.append(leases.wrong("S14", f"it and another dead letter were redriven as {copy}", offset=offset[row]))
    here = (copies[0] == leases.topic) & (copies[1] == leases.partition)
    gone = here & (copies[2] < leases.cut_end) & (copies[2] >= 0)
    changed = (letters.copy_hash[moved] != letters.hash[moved]) & ~gone
    at = found_at(leases.offsets, copies[2])
    missing = here & ~gone & (at < 0)
    rekeyed = here & (at >= 0) & (looked_up(leases.keys, at, 0) != letters.key[moved])
    for row in some(missing | changed | rekeyed):
        what = "is not in the log" if missing[row] else "has other bytes" if changed[row] else "has another key"
        found.append(leases.wrong("S14", f"its redrive, {copies[2, row]}, {what}", offset=offset[row]))
    return found


INVARIANT = Invariant(
    name="S14",
    says="each considered message is finished, leased, waiting or skipped; a redrive moves each dead letter once",
    scope=CheckScope.LEASE,
    check=check,
    doubt=doubt,
)
