"""Selected rows of a table whose columns are extracted on first use. Most checks need four of fifteen columns."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import numpy as np

from prove.checker.row_matching import Array, true_at
from prove.history.tables import ReaderKind, TableColumns, Tables


class Picked(TableColumns):
    """Rows of a table in a given order. Selecting from a selection costs no more than selecting once."""

    def __init__(self, table: TableColumns, rows: Array | None = None) -> None:
        self.name = table.name
        self._table, self._rows = table, rows

    def __getattr__(self, name: str) -> Array:
        # `TableColumns` also caches attributes in `__dict__`, which this class does not have.
        if name.startswith("_") or name == "arrays":
            raise AttributeError(name)
        column: Array = getattr(self._table, name) if self._rows is None else getattr(self._table, name)[self._rows]
        self.__dict__[name] = column
        return column

    def __len__(self) -> int:
        return len(self._table) if self._rows is None else len(self._rows)

    def where(self, chosen: Array) -> Picked:
        if chosen.dtype == np.bool_:
            chosen = true_at(chosen)
        return Picked(self._table, chosen if self._rows is None else self._rows[chosen])

    def sorted_by(self, *names: str) -> Picked:
        return self.where(np.lexsort([getattr(self, name) for name in reversed(names)]))


def pick(tables: Tables, name: str) -> Picked:
    """Return a whole table to select rows from."""
    return Picked(tables[name])


def read_by(table: Picked, readers: tuple[ReaderKind, ...]) -> Array:
    """Return which rows of `seen` or `read` belong to these readers."""
    return np.asarray(_wanted(readers)[table.reader])


@cache
def _wanted(readers: tuple[ReaderKind, ...]) -> Array:
    return np.array([reader in readers for reader in ReaderKind])


def together(names: Collection[str], *parts: Picked) -> Picked:
    """Return the rows of several tables in sequence, with the needed columns that all of them have."""
    found = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Picked(TableColumns(parts[0].name, found))
