"""S4: an idempotency key has at most one offset in its topic, and the same key with other bytes is refused.

The same holds for retries of one producer's sequence. A value occurs at most as often as it was attempted under
different identities or without one, plus its redrives. Every run is assumed to be shorter than the 24 h for which keys
are remembered. The first rule is checked over all rows of an identity, the second over all rows of a value.
"""

from __future__ import annotations

import numpy as np

from prove.checker.enum_codes import OUTCOME, READER
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lazy_columns import Picked, pick, together
from prove.checker.row_matching import Array, beginnings, counted, differs, found_at, mixed, true_at
from prove.checker.violation_text import calls, place, shown
from prove.history.tables import Tables

_SIGHT = ("topic", "partition", "offset", "hash", "identity", "process", "counter")


def check_identities(tables: Tables, run: RunInfo) -> list[Violation]:
    """Check that each identity has one offset and one content, in responses and in reads."""
    attempts, seen = pick(tables, "attempt"), pick(tables, "seen")
    told = attempts.where((attempts.outcome == OUTCOME.OK) & (attempts.offset >= 0) & (attempts.identity != 0))
    read = seen.where(seen.identity != 0)
    sights = together(_SIGHT, told, read)
    if len(sights) < 2:
        return []
    sights = sights.where(np.argsort(mixed(sights.topic, sights.identity)))
    same = ~differs(sights.topic, sights.identity)
    moved = same & differs(sights.partition, sights.offset)
    changed = same & ~moved & differs(sights.hash)
    found = [_two_places(sights, int(row), run) for row in true_at(moved)[:MOST]]
    found += [_two_contents(sights, int(row), run) for row in true_at(changed)[:MOST]]
    return found[:MOST]


def check_copies(tables: Tables, run: RunInfo) -> list[Violation]:
    """Return the copies of a value beyond those that its attempts, of any outcome, can have made."""
    seen, attempts = pick(tables, "seen"), pick(tables, "attempt")
    final = seen.where(seen.reader == READER.FINAL)
    values = mixed(final.topic, final.hash)
    codes, times = counted(values)
    codes, times = codes[times > 1], times[times > 1]
    if not len(codes):
        return []
    tried = attempts.where(attempts.outcome != OUTCOME.FAIL)
    allowed = _allowed(tried, pick(tables, "dead"), codes)
    found = []
    # S2 reports a value without an attempt, and S5 an offset that occurs twice.
    for each in true_at((times > allowed) & (allowed > 0)):
        copies = final.where(values == codes[each]).sorted_by("partition", "offset")
        copies = copies.where(beginnings(copies.partition, copies.offset))
        if len(copies) > allowed[each]:
            found.append(_copied(copies, int(allowed[each]), tried, run))
        if len(found) == MOST:
            break
    return found


def _allowed(tried: Picked, dead: Picked, codes: Array) -> Array:
    """Return how often each value may occur."""
    at = found_at(codes, mixed(tried.topic, tried.hash))
    tried, at = tried.where(at >= 0), at[at >= 0]
    alone = mixed(tried.process, tried.counter)
    names = mixed(at, np.where(tried.identity != 0, tried.identity, alone))
    order = np.argsort(names)
    once = at[order][beginnings(names[order])]
    allowed = np.bincount(once, minlength=len(codes))
    redriven = dead.where(dead.redriven > 0)
    copy = found_at(codes, mixed(redriven.copy_topic, redriven.copy_hash))
    np.add.at(allowed, copy[copy >= 0], redriven.redriven[copy >= 0])
    return allowed


def _two_places(sights: Picked, row: int, run: RunInfo) -> Violation:
    what = (
        f"{run.name(sights.identity[row])} is at {shown(run, sights, row)} and at {shown(run, sights, row + 1)}, "
        "although one identity has one place"
    )
    shows = calls(run, sights, (row, row + 1))
    return Violation(invariant="S4", what=what, calls=shows, place=place(run, sights, row + 1))


def _two_contents(sights: Picked, row: int, run: RunInfo) -> Violation:
    what = (
        f"{run.name(sights.identity[row])} at {shown(run, sights, row)} was accepted with "
        f"{run.name(sights.hash[row])} and with other bytes, {run.name(sights.hash[row + 1])}"
    )
    shows = calls(run, sights, (row, row + 1))
    return Violation(invariant="S4", what=what, calls=shows, place=place(run, sights, row))


def _copied(copies: Picked, allowed: int, tried: Picked, run: RunInfo) -> Violation:
    where = ", ".join(shown(run, copies, row) for row in range(min(len(copies), 5)))
    what = f"{run.name(copies.hash[0])} occurs {len(copies)} times, at {where}; its attempts allow {allowed}"
    same = true_at((tried.topic == copies.topic[0]) & (tried.hash == copies.hash[0]))
    shows = calls(run, tried, map(int, same[:MOST]))
    return Violation(invariant="S4", what=what, calls=shows, place=place(run, copies, len(copies) - 1))


_SAYS = "One idempotency key has at most one offset in its topic; the same key with other bytes is refused."
INVARIANTS = (
    Invariant(name="S4", says=_SAYS, scope=CheckScope.IDENTITY, check=check_identities),
    Invariant(name="S4", says=_SAYS, scope=CheckScope.VALUE, check=check_copies),
)
