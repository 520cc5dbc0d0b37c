"""S2: only attempted messages are read, with their key and in their topic; a refused message is never visible.

Messages are matched by value, so values must differ. S4 checks how often a value occurs. A redrive may have repaired
the value that it published; such a value was never attempted. A reader that returns no key is matched by value alone,
but the final read returns keys.
"""

from __future__ import annotations

import numpy as np

from prove.checker.enum_codes import OUTCOME, READER
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lazy_columns import Picked, pick
from prove.checker.row_matching import Array, beginnings, found_at, mixed, true_at
from prove.checker.violation_text import calls, place, shown
from prove.history.tables import ReaderKind, Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    attempts, seen = pick(tables, "attempt"), pick(tables, "seen")
    if not len(seen):
        return []
    possible = attempts.where(attempts.outcome != OUTCOME.FAIL)
    keyed = (seen.key != 0) | (seen.reader == READER.FINAL)
    known, at = _matched(possible, seen, keyed)
    unknown = (at < 0) & ~_redriven(pick(tables, "dead"), seen)
    early = (at >= 0) & (seen.completed_ns > 0)
    if len(known):
        early &= seen.completed_ns < known[at]
    found = [_unattempted(attempts, seen, int(row), run) for row in true_at(unknown)[:MOST]]
    found += [_early(possible, seen, int(row), run) for row in true_at(early)[:MOST]]
    return found[:MOST]


def _matched(possible: Picked, seen: Picked, keyed: Array) -> tuple[Array, Array]:
    """Return when each value was first attempted, and the index of each observed value; -1 if it was not attempted."""
    values = mixed(possible.topic, possible.hash)
    codes, invoked = mixed(values, possible.key), possible.invoked_ns
    wanted = mixed(seen.topic, seen.hash)
    if keyed.any():
        wanted = np.where(keyed, mixed(wanted, seen.key), wanted)
    if not keyed.all():
        codes, invoked = np.concatenate([codes, values]), np.concatenate([invoked, invoked])
    if not len(codes):
        return invoked, np.full(len(seen), -1)
    order = np.argsort(codes)
    codes, invoked = codes[order], invoked[order]
    begins = beginnings(codes)
    return np.minimum.reduceat(invoked, begins), found_at(codes[begins], wanted)


def _redriven(dead: Picked, seen: Picked) -> Array:
    """Return the values that a redrive published."""
    copied = dead.where(dead.redriven > 0)
    if not len(copied):
        return np.zeros(len(seen), np.bool_)
    return np.isin(mixed(seen.topic, seen.hash), mixed(copied.copy_topic, copied.copy_hash))


def _unattempted(attempts: Picked, seen: Picked, row: int, run: RunInfo) -> Violation:
    same = true_at((attempts.hash == seen.hash[row]) & (attempts.topic == seen.topic[row]))
    refused = [int(each) for each in same if attempts.key[each] == seen.key[row] or not seen.key[row]]
    why = "was refused" if refused else "was attempted under another key" if len(same) else "was never attempted"
    return _violation(why, attempts.where(np.array(refused or same, np.int64)), seen, row, run)


def _early(possible: Picked, seen: Picked, row: int, run: RunInfo) -> Violation:
    same = true_at((possible.hash == seen.hash[row]) & (possible.topic == seen.topic[row]))
    return _violation("was read before its attempt", possible.where(same), seen, row, run)


def _violation(why: str, attempts: Picked, seen: Picked, row: int, run: RunInfo) -> Violation:
    reader = ReaderKind(int(seen.reader[row])).name.lower()
    what = (
        f"{reader} read at {shown(run, seen, row)}: {run.name(seen.hash[row])} with key {run.name(seen.key[row])} {why}"
    )
    involved = calls(run, attempts, range(min(len(attempts), MOST))) + calls(run, seen, [row])
    return Violation(invariant="S2", what=what, calls=involved, place=place(run, seen, row))


INVARIANT = Invariant(
    name="S2",
    says="Only attempted messages are read; a refused message is never visible.",
    scope=CheckScope.VALUE,
    check=check,
)
