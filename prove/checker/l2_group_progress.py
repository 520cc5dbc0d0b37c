"""L2: each group progresses in every quiet 30 s while a consumer calls and work is available.

Work is a message that the group has not considered yet. A leased message depends on its owner, and a waiting message on
its due time. A lack of progress is certain only between two samples that are equal in all partitions.
"""

from __future__ import annotations

import numpy as np

from lakelog.model.group import Order
from prove.checker.enum_codes import OUTCOME, VERB
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.row_matching import Array, beginnings, differs, true_at
from prove.checker.timing import SECOND, quiet
from prove.history.tables import TableColumns, Tables

LIMIT_SECONDS = 30.0
SETTLE_NS = 10 * SECOND
"""The time that a server may take to serve again after a fault (L4)."""
_MOVES = (
    "epoch",
    "committed",
    "frontier",
    "leased",
    "waiting",
    "acked",
    "dead",
    "discarded",
    "filtered",
    "expired",
    "cut",
)


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    rows = tables["progress"]
    rows = rows.where((rows.outcome == OUTCOME.OK) & ~rows.final)
    limit = int(run.targets.get("L2", LIMIT_SECONDS) * SECOND)
    if len(rows) < 2 or rows.invoked_ns.max() - rows.completed_ns.min() <= limit:
        return []  # A group cannot have stalled for longer than it was sampled.
    found = []
    for began, ended, last in _stalls(rows, run, limit):
        for low, high in quiet(run, SETTLE_NS):
            high = min(high, ended)
            low = _asked_from(tables, int(last.topic[0]), max(low, began), high)
            if high - low > limit:
                what = f"{run.name(last.group[0])} did not progress for {(high - low) // SECOND} s from {low} ns on; "
                what += f"in {run.name(last.topic[0])}/{int(last.partition[0])} it had considered what is before "
                what += f"{last.frontier[0]} of {last.high_watermark[0]}"
                found.append(Violation(invariant="L2", what=what))
    return found[:MOST]


def _stalls(rows: TableColumns, run: RunInfo, limit: int) -> list[tuple[int, int, TableColumns]]:
    """Return the intervals above the limit without progress: start, end, and a sample with available work."""
    rows = rows.sorted_by("topic", "partition", "completed_ns", "counter")
    moved = np.zeros(len(rows), np.bool_)
    fresh = np.ones(len(rows), np.bool_)
    fresh[1:] = differs(rows.topic, rows.partition)
    moved[1:] = ~fresh[1:] & differs(*(rows.arrays[name] for name in _MOVES))
    order = np.argsort(rows.completed_ns, kind="stable")
    rows, runs, known = rows.where(order), np.cumsum(moved[order]), np.cumsum(fresh[order])
    firsts = true_at(np.append(True, runs[1:] != runs[:-1]))
    ends = np.append(firsts[1:], len(rows))
    until = np.maximum.reduceat(rows.invoked_ns, firsts)
    found = []
    for at in true_at(until - rows.completed_ns[firsts] > limit).tolist():
        stretch = rows.where(np.arange(firsts[at], ends[at])).sorted_by("topic", "partition", "completed_ns")
        has = true_at(_has_work(stretch, run))
        begins = beginnings(stretch.topic, stretch.partition)
        # A partition that was not sampled in between may have progressed.
        if len(has) and len(begins) == known[ends[at] - 1]:
            began = max(int(stretch.completed_ns[begins].max()), int(stretch.completed_ns[has].min()))
            ended = int(np.maximum.reduceat(stretch.invoked_ns, begins).min())
            found.append((began, ended, stretch.where(has[-1:])))
    return found


def _has_work(rows: TableColumns, run: RunInfo) -> Array:
    """Return whether each sample has available work.

    A waiting message blocks later messages: all of the partition in partition order, else those of its key.
    """
    ordered = run.rules_of(rows.topic[0], rows.group[0]).order is Order.PARTITION
    held_up = (rows.waiting > 0) & ((rows.skipped > 0) | ordered)
    work: Array = (rows.high_watermark > rows.frontier) & ~held_up
    return work


def _asked_from(tables: Tables, topic: int, began: int, ended: int) -> int:
    """Return the time of the first consume or member call in the interval, or its end if there was none."""
    calls, members = tables["call"], tables["member"]
    asks = calls.where((calls.verb == VERB.CONSUME) & (calls.topic == topic))
    times = [began_in[began_in < ended] for began_in in (_begins(asks, began), _begins(members, began))]
    return int(min((each.min() for each in times if len(each)), default=ended))


def _begins(rows: TableColumns, began: int) -> Array:
    """Return when each call that had not ended earlier was first in progress."""
    going = rows.where((rows.completed_ns > began) | (rows.invoked_ns > began))
    times: Array = np.maximum(going.invoked_ns, began)
    return times


INVARIANT = Invariant(name="L2", says="each group progresses in every quiet 30 s", scope=CheckScope.GROUP, check=check)
