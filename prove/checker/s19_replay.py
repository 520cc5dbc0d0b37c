"""S19: a replay returns identical bytes, and changes no other group.

The bytes are compared with the final read. A change by another group would show in the position epoch, which only a
seek of the group itself raises. S10 and S16 check that messages stay finished and that the committed offset does not
fall within an epoch.
"""

from __future__ import annotations

import numpy as np

from prove.checker.enum_codes import OUTCOME, READER, VERB
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lazy_columns import Picked, pick
from prove.checker.row_matching import Array, beginnings, found_at, mixed, true_at
from prove.checker.violation_text import calls, place, shown
from prove.history.tables import Tables


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    return (_other_bytes(pick(tables, "seen"), run) + _moved(pick(tables, "progress"), pick(tables, "call"), run))[
        :MOST
    ]


def _other_bytes(seen: Picked, run: RunInfo) -> list[Violation]:
    replayed = seen.where(seen.reader == READER.REPLAY)
    if not len(replayed):
        return []
    final = seen.where(seen.reader == READER.FINAL)
    if not len(final):
        return []
    final = final.where(np.argsort(mixed(final.topic, final.partition, final.offset)))
    at = found_at(
        mixed(final.topic, final.partition, final.offset), mixed(replayed.topic, replayed.partition, replayed.offset)
    )
    # A reader that returns no key is compared by value.
    same = (replayed.hash == final.hash[at]) & ((replayed.key == final.key[at]) | (replayed.key == 0))
    wrong = np.where(at >= 0, ~same, replayed.offset > _first_left(final, replayed))
    return [_violation(replayed, int(row), final, int(at[row]), run) for row in true_at(wrong)[:MOST]]


def _first_left(final: Picked, replayed: Picked) -> Array:
    """Return the lowest offset that the final read has of each row's partition. Messages below it were retired."""
    final = final.sorted_by("topic", "partition", "offset")
    lowest = final.where(beginnings(final.topic, final.partition))
    order = np.argsort(codes := mixed(lowest.topic, lowest.partition))
    at = found_at(codes[order], mixed(replayed.topic, replayed.partition))
    return np.where(at >= 0, lowest.offset[order[at]], np.iinfo(np.int64).max)


def _violation(replayed: Picked, row: int, final: Picked, at: int, run: RunInfo) -> Violation:
    instead = (
        f"{run.name(final.hash[at])} with key {run.name(final.key[at])} is there" if at >= 0 else "nothing is there"
    )
    what = (
        f"a replay returned {run.name(replayed.hash[row])} with key {run.name(replayed.key[row])} at "
        f"{shown(run, replayed, row)}, but in the final read {instead}"
    )
    return Violation(invariant="S19", what=what, calls=calls(run, replayed, [row]), place=place(run, replayed, row))


def _moved(progress: Picked, told: Picked, run: RunInfo) -> list[Violation]:
    """Return epochs that rose by more than the group's own seeks. A partition may apply a seek late."""
    progress = progress.where(progress.outcome == OUTCOME.OK)
    if not len(progress) or (progress.epoch == progress.epoch[0]).all():
        return []
    seeks = told.where((told.verb == VERB.SEEK) & (told.outcome != OUTCOME.FAIL))
    progress = progress.sorted_by("topic", "partition", "completed_ns")
    begins = beginnings(progress.topic, progress.partition)
    lengths = np.diff(np.append(begins, len(progress)))
    risen = progress.epoch - np.repeat(np.minimum.reduceat(progress.epoch, begins), lengths)
    fresh = np.ones(len(progress), np.bool_)
    fresh[1:] = np.diff(progress.epoch) > 0
    fresh[begins] = True
    found = []
    for row in true_at(fresh & (risen > 0)):
        mine = (seeks.topic == progress.topic[row]) & (seeks.invoked_ns < progress.completed_ns[row])
        # A client may have repeated a seek whose response it never got.
        if risen[row] > mine.sum() and not (seeks.outcome[mine] == OUTCOME.INFO).any():
            found.append(_unexplained(progress, int(row), int(risen[row]), int(mine.sum()), run))
        if len(found) == MOST:
            break
    return found


def _unexplained(progress: Picked, row: int, risen: int, sought: int, run: RunInfo) -> Violation:
    where = f"{run.name(progress.topic[row])}/{int(progress.partition[row])}"
    what = (
        f"the position epoch of group {run.name(progress.group[row])} in {where} rose by {risen} to "
        f"{int(progress.epoch[row])}, but the group made {sought} seeks"
    )
    return Violation(invariant="S19", what=what, calls=calls(run, progress, [row]))


INVARIANT = Invariant(
    name="S19",
    says="A replay changes no other group, and returns identical bytes.",
    scope=CheckScope.GROUP,
    check=check,
)
