"""Storage protocol of Iceberg tables, which are in the catalog: the newest version of each, and its files.

The files themselves are in the object store, which a store never accesses. The contracts are the docstrings of the
methods; `tests/contract` checks every implementation.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from lakelog.model.iceberg import IcebergCommit, IcebergTable, TableKind
from lakelog.model.topic import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """The newest version of a table, and the paths of the segments in it."""

    version: int
    metadata: str
    segments: frozenset[str]


class IcebergCatalog(Protocol):
    """The Iceberg tables of the catalog."""

    async def table_read(self, incarnation: int, kind: TableKind = TableKind.MESSAGES) -> StoredTable | None:
        """Return a table of a topic, if it has one, from one snapshot."""
        ...

    async def table_list(self, scope: Scope, *, topic: str | None = None) -> list[IcebergTable]:
        """Return the tables of the open topics of an environment, by name; with `topic`, only its tables."""
        ...

    async def table_commit(self, commit: IcebergCommit) -> bool:
        """Make the metadata file the newest one of the table, and record its files. Return whether it is the newest.

        The call does nothing if the table has another version than the commit expects, or if the topic was deleted.
        Repeating it returns the same result while no other commit follows. Files that left the table before the version
        `oldest` are forgotten.
        """
        ...

    async def table_paths_known(self, paths: Collection[str]) -> set[str]:
        """Return those of the paths that a version of a table has that is not forgotten."""
        ...
