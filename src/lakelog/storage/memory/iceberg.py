"""Iceberg tables in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from lakelog.model.iceberg import IcebergCommit, IcebergTable, TableKind
from lakelog.model.topic import Scope, Topic
from lakelog.storage.iceberg import StoredTable
from lakelog.storage.memory.audit import MemoryAudit


@dataclass(slots=True)
class _Table:
    """A table. `files` has the version that removed each file, or None."""

    version: int = 0
    metadata: str = ""
    files: dict[str, int | None] = field(default_factory=dict)


class MemoryIceberg:
    """An `IcebergCatalog` in memory. The `MemoryCatalog` provides open topics by incarnation."""

    def __init__(self, open_topic: Callable[[int], Topic | None], audit: MemoryAudit) -> None:
        self._open_topic = open_topic
        self._audit = audit
        self._tables: dict[tuple[int, TableKind], _Table] = {}

    async def table_read(self, incarnation: int, kind: TableKind = TableKind.MESSAGES) -> StoredTable | None:
        await asyncio.sleep(0)
        table = self._tables.get((incarnation, kind))
        if table is None:
            return None
        live = (path for path, removed in table.files.items() if removed is None and path.endswith(".parquet"))
        return StoredTable(version=table.version, metadata=table.metadata, segments=frozenset(live))

    async def table_list(self, scope: Scope, *, topic: str | None = None) -> list[IcebergTable]:
        await asyncio.sleep(0)
        found = []
        for (incarnation, kind), table in self._tables.items():
            of = self._open_topic(incarnation)
            if of is not None and of.scope.environment_id == scope.environment_id and topic in (None, of.name):
                found.append(IcebergTable(topic=of.name, kind=kind, version=table.version, metadata=table.metadata))
        return sorted(sorted(found, key=lambda each: each.kind, reverse=True), key=lambda each: each.topic)

    async def table_commit(self, commit: IcebergCommit) -> bool:
        await asyncio.sleep(0)
        if self._open_topic(commit.incarnation) is None:
            return False
        place = (commit.incarnation, commit.kind)
        table = self._tables.get(place, _Table())
        if table.version != commit.version:
            return table.metadata == commit.metadata
        self._tables[place] = table
        table.version += 1
        table.metadata = commit.metadata
        table.files |= dict.fromkeys(commit.added)
        for path in commit.removed:
            if path in table.files and table.files[path] is None:
                table.files[path] = table.version
        table.files = {
            path: removed for path, removed in table.files.items() if removed is None or removed >= commit.oldest
        }
        self._audit.changed()
        return True

    async def table_paths_known(self, paths: Collection[str]) -> set[str]:
        await asyncio.sleep(0)
        return {path for path in paths for table in self._tables.values() if path in table.files}

    def forget(self, incarnation: int) -> None:
        """Delete the tables of a deleted topic."""
        for kind in TableKind:
            self._tables.pop((incarnation, kind), None)
