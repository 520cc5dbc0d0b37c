"""L1: every message of the log has been delivered 60 s after the last fault.

If the load, the creation of the group or a seek ended later, the 60 s count from that time. If an earlier message of
the same key was open, the 60 s count from the end of that message. The same holds for a message that a consume of
unknown outcome may have leased. Messages that the group passed over (filtered, expired, cut) are known only by their
number.
"""

from __future__ import annotations

import numpy as np

from lakelog.model.group import Order
from prove.checker.enum_codes import OUTCOME, READER, VERB
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.row_matching import Array, beginnings, found_at, true_at
from prove.checker.timing import MS, SECOND
from prove.checker.violation_text import place, shown, some
from prove.history.tables import TableColumns, Tables

LIMIT_SECONDS = 60.0
ANSWER_NS = 10 * SECOND
"""Time that a call of unknown outcome may have taken."""
AGAIN_NS = 2 * SECOND
"""Time from the end of a lease until its messages are leased to another owner (L5)."""
_NEVER = np.iinfo(np.int64).max


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    deliveries, calls, final = tables["delivery"], tables["call"], tables["seen"]
    final = final.where(final.reader == READER.FINAL)
    asks = calls.where(calls.verb == VERB.CONSUME)
    if not run.healed_ns or not len(final) or not (len(asks) or len(deliveries)):
        return []
    limit = int(run.targets.get("L1", LIMIT_SECONDS) * SECOND)
    began = min(int(each.invoked_ns.min()) for each in (asks, deliveries, tables["progress"]) if len(each))
    due = max(_due(run, asks, deliveries, limit), _sought(calls) + limit, began + limit)
    final = final.where(final.offset >= _start(tables["progress"])).sorted_by("offset")
    first = _first_given(final, deliveries)
    late = true_at(first > due)
    never = late[first[late] == _NEVER]
    found = _late(tables, run, final, (late[first[late] < _NEVER], first), (due, limit))
    return (_unseen(tables, run, final, never, due) + found)[:MOST]


def figure(tables: Tables, run: RunInfo) -> float | None:
    """Return the seconds from the last fault until the last message was delivered for the first time."""
    final = tables["seen"]
    final = final.where(final.reader == READER.FINAL)
    first = _first_given(final, tables["delivery"])
    first = first[first < _NEVER]
    return max(0.0, float(first.max() - run.healed_ns) / SECOND) if len(first) and run.healed_ns else None


def _due(run: RunInfo, asks: TableColumns, deliveries: TableColumns, limit: int) -> int:
    due = max(run.healed_ns, run.load_ns[1]) + limit
    unknown = asks.where((asks.outcome == OUTCOME.INFO) | (asks.completed_ns == 0))
    if len(unknown) and len(deliveries):
        over = int(np.maximum(unknown.invoked_ns + ANSWER_NS, unknown.completed_ns).max())
        due = max(due, over + int(deliveries.lease_ms.max()) * MS + AGAIN_NS)
    return due


def _sought(calls: TableColumns) -> int:
    seeks = calls.where((calls.verb == VERB.SEEK) & (calls.outcome != OUTCOME.FAIL))
    return int(np.maximum(seeks.invoked_ns + ANSWER_NS, seeks.completed_ns).max()) if len(seeks) else 0


def _start(progress: TableColumns) -> int:
    """Return the start position of the group. Messages before it do not concern the group."""
    last = progress.start[progress.final]
    return int(last.min()) if len(last) else 0


def _first_given(final: TableColumns, deliveries: TableColumns) -> Array:
    """Return the time of the first delivery of each message."""
    given = deliveries.where((deliveries.outcome == OUTCOME.OK) & (deliveries.completed_ns > 0))
    if not len(given):
        return np.full(len(final), _NEVER)
    order = np.lexsort((given.completed_ns, given.offset))
    offsets = given.offset[order]
    begins = beginnings(offsets)
    at = found_at(offsets[begins], final.offset)
    times: Array = np.where(at >= 0, given.completed_ns[order][begins][at], _NEVER)
    return times


def _late(
    tables: Tables, run: RunInfo, final: TableColumns, late: tuple[Array, Array], limits: tuple[int, int]
) -> list[Violation]:
    (rows, first), (due, limit) = late, limits
    found: list[Violation] = []
    for at in rows.tolist():
        if first[at] > max(due, _busy_until(tables, run, final, at) + limit):
            what = f"{shown(run, final, at)} was first delivered {(first[at] - due) // MS} ms too late"
            found.append(Violation(invariant="L1", what=what, place=place(run, final, at)))
        if len(found) == MOST:
            break
    return found


def _busy_until(tables: Tables, run: RunInfo, final: TableColumns, at: int) -> int:
    """Return the last activity of an earlier message of the same key, or of the partition in partition order."""
    deliveries, answers = tables["delivery"], tables["answer"]
    group = deliveries.group[0]
    before = np.arange(len(final)) < at
    if run.rules_of(final.topic[at], group).order is not Order.PARTITION:
        before &= (final.key == final.key[at]) & (final.key[at] != 0)
    offsets = final.offset[before]
    times = [each.completed_ns[np.isin(each.offset, offsets)] for each in (deliveries, answers)]
    return max((int(each.max()) for each in times if len(each)), default=0)


def _unseen(tables: Tables, run: RunInfo, final: TableColumns, never: Array, due: int) -> list[Violation]:
    """Return a violation if more messages are undelivered than the group reports as passed over."""
    progress = tables["progress"]
    last = progress.where(progress.final).sorted_by("completed_ns")
    passed = sum(int(last.arrays[name][-1]) for name in _PASSED) if len(last) else 0
    # A message that died by deliveries of unknown outcome has a dead letter.
    never = never[~np.isin(final.offset[never], tables["dead"].offset)]
    if len(never) <= passed or (run.drained_ns < due and not len(last)):
        return []
    what = f"{len(never)} messages of {shown(run, final, int(never[0]))} and after were never delivered, "
    what += f"{some(final.offset[never])}; {passed} were passed over"
    return [Violation(invariant="L1", what=what, place=place(run, final, int(never[0])))]


_PASSED = ("filtered", "expired", "cut")

INVARIANT = Invariant(
    name="L1", says="every message has been delivered 60 s after the last fault", scope=CheckScope.LEASE, check=check
)
