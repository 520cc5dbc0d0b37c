"""S5: offsets are dense from log start to high watermark, and the messages of a producer and key keep their order.

Density is checked for the final read and the fetches of one partition. Order is checked for messages of one process in
one partition that were certainly sent in sequence: in one batch, with rising sequence numbers, or the second invoked
after the first was acknowledged. A message of unknown outcome is located by its value in the final read, if no other
attempt has that value. A repeat has the offset of the first attempt, so it shows nothing.
"""

from __future__ import annotations

import numpy as np

from prove.checker.enum_codes import OUTCOME, READER
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lazy_columns import Picked, pick
from prove.checker.read_results import Ends, broken_inside, ends_of, final_read
from prove.checker.row_matching import Array, beginnings, differs, mixed, true_at
from prove.checker.violation_text import calls, place, shown, some
from prove.history.tables import ReaderKind, Tables


def check_density(tables: Tables, run: RunInfo) -> list[Violation]:
    final = final_read(tables)
    ends = ends_of(tables)
    found = []
    if ends is not None:
        found = _holes(final.offset, ends, pick(tables, "read"), run)
    elif len(final):
        found = [Violation(invariant="S5", what=f"{shown(run, final, 0)} was read, but not where the log ends")]
    # Each call of the final read is in order, too. Gaps between two calls were reported above.
    readers = (ReaderKind.FETCH,) if found else (ReaderKind.FETCH, ReaderKind.FINAL)
    return (found + broken_inside("S5", tables, run, readers))[:MOST]


def _holes(offsets: Array, ends: Ends, reads: Picked, run: RunInfo) -> list[Violation]:
    low, start, end = ends.first_start, ends.log_start, ends.high_watermark
    if low == start and len(offsets) == end - start and (offsets == np.arange(start, end)).all():
        return []
    inside = offsets[(offsets >= start) & (offsets < end)]
    once = inside[beginnings(inside)]
    missing = _absent(once, start, end)
    outside = offsets[(offsets < low) | (offsets >= end)]
    twice = np.unique(offsets[1:][~differs(offsets)])
    if not (len(missing) or len(outside) or len(twice)):
        return []
    row = int(true_at(reads.reader == READER.FINAL)[0])
    where = f"{run.name(reads.topic[row])}/{int(reads.partition[row])} from {start} to {end}"
    what = f"{where}: missing {some(missing)}, outside {some(outside)}, twice {some(twice)}"
    return [Violation(invariant="S5", what=what, calls=calls(run, reads, [row]))]


def _absent(once: Array, start: int, end: int) -> Array:
    """Return the first few missing offsets without building the full range."""
    edges = np.concatenate([[start - 1], once, [max(end, start)]])
    gaps = true_at(np.diff(edges) > 1)[:11]
    found = [np.arange(edges[gap] + 1, min(edges[gap + 1], edges[gap] + 12)) for gap in gaps]
    return np.concatenate([*found, np.zeros(0, np.int64)])


def check_order(tables: Tables, run: RunInfo) -> list[Violation]:
    sent = _certain(pick(tables, "attempt"))
    if len(sent) < 2:
        return []
    sender = np.where(sent.producer != 0, sent.producer, sent.process)
    stream = mixed(sent.topic, sent.partition, sent.key, sender)
    order = np.lexsort([sent.offset, stream])
    sent, stream = sent.where(order), stream[order]
    if differs(stream).all():
        return []  # No producer sent two messages of one key.
    pairs = {*_acked_behind(sent, stream), *_sequence_falls(sent, stream), *_batch_falls(sent, stream)}
    return [_swapped(sent, *pair, run) for pair in sorted(pairs)[:MOST] if sent.key[pair[0]] == sent.key[pair[1]]]


def _certain(attempts: Picked) -> Picked:
    """Return the messages with a key whose offset comes from their own call."""
    chosen = (attempts.key != 0) & (attempts.offset >= 0) & ~attempts.duplicate
    chosen &= (attempts.outcome == OUTCOME.OK) | ((attempts.outcome == OUTCOME.INFO) & ~attempts.shared)
    return attempts.where(chosen & ~_repeats(attempts))


def _repeats(attempts: Picked) -> Array:
    """Return the attempts of an identity except the first attempt of the process."""
    again = np.zeros(len(attempts), np.bool_)
    named = true_at(attempts.identity != 0)
    if len(named):
        codes = mixed(attempts.topic[named], attempts.identity[named])
        order = np.lexsort([attempts.counter[named], attempts.invoked_ns[named], codes])
        later = ~differs(codes[order])
        again[named[order[1:][later]]] = True
    return again


def _acked_behind(sent: Picked, stream: Array) -> list[tuple[int, int]]:
    """Return messages that were invoked after a message at a higher offset was acknowledged.

    One backward pass keeps the earliest ack.
    """
    count = len(sent)
    times = np.where(sent.outcome == OUTCOME.OK, sent.completed_ns, np.iinfo(np.int64).max)
    by_time = np.argsort(times)
    rank = np.empty(count, np.int64)
    rank[by_time] = np.arange(count)
    # The numbers of a stream are below those of all later streams, so the running minimum restarts with each stream.
    number = np.cumsum(np.append(False, differs(stream)))
    soonest = np.minimum.accumulate((rank + number * count)[::-1])[::-1]
    behind = by_time[soonest[1:] % count]
    late = ~differs(stream) & (times[behind] < sent.invoked_ns[:-1])
    rows = true_at(late)[:MOST]
    return [(int(behind[row]), int(row)) for row in rows]


def _sequence_falls(sent: Picked, stream: Array) -> list[tuple[int, int]]:
    """Return neighbours in the log whose sequence number falls. If it never falls, no pair is swapped."""
    numbered = true_at((sent.sequence >= 0) & (sent.producer != 0))
    if not len(numbered):
        return []
    falls = true_at(~differs(stream[numbered]) & (np.diff(sent.sequence[numbered]) < 0))[:MOST]
    return [(int(numbered[row + 1]), int(numbered[row])) for row in falls]


def _batch_falls(sent: Picked, stream: Array) -> list[tuple[int, int]]:
    """Return neighbours of one call whose order in the log is reversed."""
    call = mixed(stream, sent.process, sent.batch)
    order = np.argsort(call, kind="stable")
    falls = true_at(~differs(call[order]) & (np.diff(sent.counter[order]) < 0))[:MOST]
    return [(int(order[row + 1]), int(order[row])) for row in falls]


def _swapped(sent: Picked, first: int, second: int, run: RunInfo) -> Violation:
    one, other = calls(run, sent, [first]), calls(run, sent, [second])
    what = (
        f"of key {run.name(sent.key[first])}, {one[0]} was sent before {other[0]}, "
        f"but is at {shown(run, sent, first)}, after {shown(run, sent, second)}"
    )
    return Violation(invariant="S5", what=what, calls=one + other, place=place(run, sent, first))


_SAYS = "Offsets are dense from log start to high watermark; per-producer-and-key order is kept."
INVARIANTS = (
    Invariant(name="S5", says=_SAYS, scope=CheckScope.LOG, check=check_density),
    Invariant(name="S5", says=_SAYS, scope=CheckScope.PRODUCER, check=check_order),
)
