"""S3: a (topic, partition, offset) has one content hash in every publish, delivery, replay, hot and cold read.

The check compares all observations; it does not decide which of them is right.
"""

from __future__ import annotations

import numpy as np

from prove.checker.enum_codes import OUTCOME
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lazy_columns import Picked, pick
from prove.checker.row_matching import Array, beginnings, true_at
from prove.checker.violation_text import call
from prove.history.tables import ReaderKind, Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    attempts, seen = pick(tables, "attempt"), pick(tables, "seen")
    told = attempts.where((attempts.outcome == OUTCOME.OK) & (attempts.offset >= 0))
    offsets = np.concatenate([told.offset, seen.offset])
    # A stable sort is several times faster here, because each part is already mostly in order.
    order = np.argsort(offsets, kind="stable")
    offsets, hashes = offsets[order], np.concatenate([told.hash, seen.hash])[order]
    other = true_at((hashes[1:] != hashes[:-1]) & (offsets[1:] == offsets[:-1]))
    if not len(other):
        return []
    places = other[beginnings(offsets[other])][:MOST]
    return [_violation(order[row : row + 2], told, seen, run) for row in places]


def _violation(rows: Array, told: Picked, seen: Picked, run: RunInfo) -> Violation:
    sights = []
    for row in map(int, rows):
        table, at = (told, row) if row < len(told) else (seen, row - len(told))
        by = "publish" if table is told else ReaderKind(int(seen.reader[at])).name.lower()
        sights.append((by, run.name(table.hash[at]), call(run, table, at) if table.process[at] else None))
        where = run.name(table.topic[at]), int(table.partition[at]), int(table.offset[at])
    (one, is_one, by_one), (other, is_other, by_other) = sights
    what = f"{where[0]}/{where[1]}@{where[2]} is {is_one} by {one} and {is_other} by {other}"
    involved = tuple(each for each in (by_one, by_other) if each is not None)
    return Violation(invariant="S3", what=what, calls=involved, place=where)


INVARIANT = Invariant(
    name="S3",
    says="An offset has one content hash in every publish, delivery, replay, hot and cold read.",
    scope=CheckScope.LOG,
    check=check,
)
