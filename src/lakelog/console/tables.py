"""Sorts and filters the rows of tables by the parameters of the URL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """The chosen order and search text of a table.

    Attributes:
        by: The column; the first one of the table by default.
        search: Only rows whose name contains this text.
    """

    by: str
    search: str

    @classmethod
    def of(cls, query: Mapping[str, str], columns: Collection[str]) -> Sorting:
        """Return what the URL chooses. A column that does not exist is the first one."""
        by = query.get("sort", "")
        return cls(by=by if by in columns else next(iter(columns)), search=query.get("q", "").strip().lower()[:120])

    def link(self, column: str) -> str:
        """Return the query of the URL that sorts by another column."""
        return self._link(sort=column, q=self.search)

    def first(self) -> str:
        """Return the query of the URL of the first rows."""
        return self._link(sort=self.by, q=self.search)

    def following(self, after: str) -> str:
        """Return the query of the URL of the rows after the one with this name."""
        return self._link(sort=self.by, q=self.search, after=after)

    @staticmethod
    def _link(**parameters: str) -> str:
        return "?" + urlencode({name: text for name, text in parameters.items() if text})


def sort_and_filter(
    rows: Iterable[T], sorting: Sorting, columns: Mapping[str, Callable[[T], Any]], name: Callable[[T], str]
) -> list[T]:
    """Return the rows that match the search text, in the chosen order."""
    return sorted((row for row in rows if sorting.search in name(row)), key=columns[sorting.by])
