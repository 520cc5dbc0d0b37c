"""Time arithmetic that several checks share: order of events, and quiet intervals."""

from __future__ import annotations

import numpy as np

from prove.checker.invariant import RunInfo
from prove.checker.row_matching import Array, beginnings

MS = 1_000_000
SECOND = 1000 * MS


def most_before(codes: Array, at: Array, values: Array, asked: Array, asked_at: Array) -> Array:
    """Return, for each query of a code and a time, the largest earlier value of that code; -1 for none.

    Values must not be negative.
    """
    if not len(codes):
        return np.full(len(asked), -1)
    both = np.concatenate([codes, asked])
    is_known = np.arange(len(both)) < len(codes)
    order = np.lexsort((is_known, np.concatenate([at, asked_at]), both))
    known = np.concatenate([values, np.full(len(asked), -1)])[order]
    fresh = np.zeros(len(both), np.int64)
    fresh[beginnings(both[order])] = 1
    # Each code has a floor that no value of the previous code reaches.
    floor = np.cumsum(fresh) * (int(values.max()) + 2)
    found = np.empty(len(both), np.int64)
    found[order] = np.maximum.accumulate(known + floor) - floor
    return found[len(codes) :]


def has_fault(run: RunInfo, began_ns: int, ended_ns: int) -> bool:
    return any(fault.began_ns < ended_ns and _end(fault.ended_ns) > began_ns for fault in run.faults)


def quiet(run: RunInfo, settle_ns: int) -> list[tuple[int, int]]:
    """Return the intervals of the load without a fault. Each begins `settle_ns` after the end of a fault."""
    at, end = run.load_ns
    found = []
    for fault in sorted(run.faults, key=lambda each: each.began_ns):
        if fault.began_ns > at:
            found.append((at, min(fault.began_ns, end)))
        at = max(at, _end(fault.ended_ns) + settle_ns)
    found.append((at, end))
    return [(first, last) for first, last in found if first < last]


def _end(ended_ns: int) -> int:
    """Return the end of a fault. A fault without an end lasts forever."""
    return ended_ns or 1 << 62
