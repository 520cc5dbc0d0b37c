"""Column arithmetic that several checks share: sorted rows, rows with equal codes, and running minimums."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from prove.checker.invariant import MOST
from prove.checker.row_matching import found_at, true_at
from prove.history.tables import TableColumns

Array = npt.NDArray[Any]
NEVER = np.iinfo(np.int64).max
"""A time that never arrives."""
_MOST_CODES = 2**62


class SortedRows:
    """Rows of a table in a given order. A column is sorted on first use."""

    def __init__(self, table: TableColumns, order: Array) -> None:
        self._table, self._order = table, order

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_"):
            raise AttributeError(name)
        column: Array = getattr(self._table, name)[self._order]
        self.__dict__[name] = column
        return column

    def __len__(self) -> int:
        return len(self._order)


class RowGroups:
    """Rows that share a code, in rising order of the code. `number` has the group index of each row."""

    def __init__(self, codes: Array) -> None:
        self._order: Array | None = None
        if len(codes) > 1 and not (codes[1:] >= codes[:-1]).all():
            self._order = np.argsort(codes, kind="stable")
            codes = codes[self._order]
        begins = np.ones(len(codes), np.bool_)
        np.not_equal(codes[1:], codes[:-1], out=begins[1:])
        self._starts = true_at(begins)
        self.codes = codes[self._starts]
        self.number: Array = np.cumsum(begins) - 1
        if self._order is not None:
            ranked, self.number = self.number, np.empty_like(self.number)
            self.number[self._order] = ranked

    def __len__(self) -> int:
        return len(self._starts)

    def least(self, values: Array) -> Array:
        """Return the smallest value of each group."""
        return self._reduced(np.minimum, values)

    def most(self, values: Array) -> Array:
        return self._reduced(np.maximum, values)

    def any(self, chosen: Array) -> Array:
        return self._reduced(np.logical_or, chosen)

    def find(self, codes: Array) -> Array:
        """Return the group index of each code; -1 if it is missing."""
        return found_at(self.codes, codes)

    def _reduced(self, function: np.ufunc, values: Array) -> Array:
        if not len(self):
            return values[:0]
        ranked = values if self._order is None else values[self._order]
        return np.asarray(function.reduceat(ranked, self._starts))


def looked_up(by_group: Array, at: Array, otherwise: int | bool) -> Array:
    """Return the values at these indices, and `otherwise` at index -1."""
    if not len(by_group):
        return np.full(len(at), otherwise)
    return np.append(by_group, np.array([otherwise], by_group.dtype))[at]


def paired(first: Array, second: Array) -> tuple[Array, int]:
    """Return pairs of numbers as single numbers with the same order, and the factor of the first number."""
    width = int(second.max(initial=0)) + 1
    if (int(first.max(initial=0)) + 1) * width > _MOST_CODES:
        second = np.unique(second, return_inverse=True)[1]
        width = len(second) + 1
    return first.astype(np.int64) * width + second, width


def running_least(values: Array, begins: Array) -> Array:
    """Return the running minimum within each run of rows. A run begins where `begins` is true."""
    if not len(values):
        return values
    distinct, ranks = np.unique(values, return_inverse=True)
    # Shift every run below all earlier ones, so that the earlier ones do not count.
    depth = np.cumsum(begins) * len(distinct)
    return np.asarray(distinct[np.minimum.accumulate(ranks - depth) + depth])


def some(chosen: Array) -> list[int]:
    """Return the selected rows, up to the number worth reporting."""
    return [int(row) for row in true_at(chosen)[:MOST]]
