"""Row matching: one code for several columns, and the position of a code in a sorted array.

Codes may collide by chance, as 64-bit hashes of texts may: once in a hundred thousand runs of 20 million rows. A check
that is about to report a violation therefore compares the columns themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(31)
_MANY = 1000


def mixed(*parts: Array) -> Array:
    """Return one code per row. Rows with equal parts have equal codes."""
    code = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        code = (code ^ part.astype(np.int64, copy=False).view(np.uint64)) * _ODD
        code ^= code >> _SHIFT
        code *= _MIX
        code ^= code >> _SHIFT
    return code.view(np.int64)


def true_at(mask: Array) -> Array:
    """Return the rows where the mask is true. `np.flatnonzero` is five times slower if there are few rows."""
    return mask.nonzero()[0]


def found_at(ordered: Array, wanted: Array) -> Array:
    """Return the first index of each wanted code in a sorted array; -1 if it is missing."""
    if not len(ordered):
        return np.full(len(wanted), -1)
    if len(wanted) < _MANY:
        at = ordered.searchsorted(wanted)
    else:
        # Searching for sorted codes is several times faster than searching in random order.
        order = np.argsort(wanted)
        at = np.empty(len(wanted), np.int64)
        at[order] = np.searchsorted(ordered, wanted[order])
    near = np.minimum(at, len(ordered) - 1)
    return np.where(ordered[near] == wanted, near, -1)


def counted(codes: Array) -> tuple[Array, Array]:
    """Return each code once, in order, and its number of occurrences."""
    ordered = np.sort(codes)
    begins = beginnings(ordered)
    ends = np.concatenate((begins[1:], [len(ordered)])) if len(begins) else begins
    return ordered[begins], ends - begins


def beginnings(*ordered: Array) -> Array:
    """Return where each run of equal rows begins."""
    if not len(ordered[0]):
        return np.zeros(0, np.int64)
    fresh = np.empty(len(ordered[0]), np.bool_)
    fresh[0], fresh[1:] = True, differs(*ordered)
    return true_at(fresh)


def differs(*ordered: Array) -> Array:
    """Return, for each row but the first, whether it differs from the previous row in any column."""
    changed: Array = ordered[0][1:] != ordered[0][:-1]
    for column in ordered[1:]:
        changed |= column[1:] != column[:-1]
    return changed
