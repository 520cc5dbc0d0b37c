"""S7: a batch is all or nothing per partition.

Messages of a batch that were refused, or that share their identity or value with another attempt, are left out. A
message of unknown outcome counts for the partition that it named, or for the partition of the other messages of its key
in that batch. A message with neither could be in any partition and shows nothing. Acknowledged batches are looked up
in the final read of their partition; the others are judged with the other messages of their process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from prove.checker.enum_codes import OUTCOME, READER
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lazy_columns import Picked, pick
from prove.checker.read_results import ends_of, final_read
from prove.checker.row_matching import Array, beginnings, found_at, true_at
from prove.checker.violation_text import call, calls
from prove.history.tables import Tables


def check_answered(tables: Tables, run: RunInfo) -> list[Violation]:
    """Return acknowledged batches above the log start that the final read has only in part."""
    attempts, ends = pick(tables, "attempt"), ends_of(tables)
    if ends is None:
        return []
    members = _members(attempts.where(attempts.offset >= ends.log_start))
    final = final_read(tables)
    at = found_at(final.offset, members.offset)
    there = (at >= 0) & (final.hash[at] == members.hash) if len(final) else at >= 0
    found = []
    for begin, end in _halves(members, there):
        missing = begin + int(true_at(~there[begin:end])[0])
        found.append(_violation(members, range(begin, end), int(there[begin:end].sum()), missing, run))
        if len(found) == MOST:
            break
    return found


def check_unknown(tables: Tables, run: RunInfo) -> list[Violation]:
    """Return batches with a message in the log and a missing message of unknown outcome, in the same partition."""
    members = _members(pick(tables, "attempt"))
    there = members.offset >= 0
    if there.all():
        return []
    starts = _log_starts(pick(tables, "read"))
    found: list[Violation] = []
    for begin, end in _halves(members, there):
        for partition, rows in _by_partition(members, range(begin, end)).items():
            missing = _missing(members, rows, starts.get((int(members.topic[begin]), partition), 0))
            if missing is not None:
                found.append(_violation(members, rows, int(there[rows].sum()), missing, run))
        if len(found) >= MOST:
            break
    return found[:MOST]


def _members(attempts: Picked) -> Picked:
    """Return the messages that must share the outcome of their batch, ordered by batch."""
    chosen = attempts.where((attempts.outcome != OUTCOME.FAIL) & ~attempts.duplicate & ~attempts.shared)
    return chosen.sorted_by("process", "topic", "batch", "counter")


def _halves(members: Picked, there: Array) -> Iterator[tuple[int, int]]:
    """Yield the row ranges of batches that are only partly in the log."""
    if there.all():
        return
    begins = beginnings(members.process, members.topic, members.batch)
    ends = np.append(begins[1:], len(members))
    present = np.add.reduceat(there.astype(np.int64), begins)
    for number in true_at((present > 0) & (present < ends - begins)):
        yield int(begins[number]), int(ends[number])


def _by_partition(members: Picked, rows: Sequence[int]) -> dict[int, list[int]]:
    placed, asked = members.partition, members.asked_partition
    known = {row: int(placed[row] if placed[row] >= 0 else asked[row]) for row in rows}
    by_key = {int(members.key[row]): part for row, part in known.items() if part >= 0 and members.key[row]}
    parts: dict[int, list[int]] = defaultdict(list)
    for row, part in known.items():
        partition = part if part >= 0 else by_key.get(int(members.key[row]), -1)
        if partition >= 0:
            parts[partition].append(row)
    return parts


def _missing(members: Picked, rows: Sequence[int], log_start: int) -> int | None:
    """Return the first message that should be in the log; None if there is none, or if nothing is certain."""
    offsets = members.offset[rows]
    present = true_at(offsets >= 0)
    if not len(present):
        return None
    # The messages of a batch are adjacent, so the first one found shows where the others would be.
    first = int(offsets[present[0]] - present[0])
    for index in true_at(offsets < 0):
        if not 0 <= first + index < log_start:
            return rows[int(index)]
    return None


def _log_starts(reads: Picked) -> Mapping[tuple[int, int], int]:
    ended = reads.where((reads.reader == READER.FINAL) & (reads.outcome == OUTCOME.OK)).sorted_by("log_start")
    return {
        (int(topic), int(partition)): int(start)
        for topic, partition, start in zip(ended.topic, ended.partition, ended.log_start, strict=True)
    }


def _violation(members: Picked, rows: Sequence[int], there: int, missing: int, run: RunInfo) -> Violation:
    what = (
        f"{there} of {len(rows)} messages of batch {call(run, members, rows[0])} are in their partition; "
        f"missing {call(run, members, missing)}"
    )
    return Violation(invariant="S7", what=what, calls=calls(run, members, rows[:MOST]))


_SAYS = "A batch is all or nothing per partition."
INVARIANTS = (
    Invariant(name="S7", says=_SAYS, scope=CheckScope.LOG, check=check_answered),
    Invariant(name="S7", says=_SAYS, scope=CheckScope.PRODUCER, check=check_unknown),
)
