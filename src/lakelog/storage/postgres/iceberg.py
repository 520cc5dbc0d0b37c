"""Iceberg tables on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection

from lakelog.model.iceberg import IcebergCommit, IcebergTable, TableKind
from lakelog.model.topic import Scope
from lakelog.storage.iceberg import StoredTable
from lakelog.storage.postgres.audit import write_change
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load

_SQL = load("iceberg")


class PostgresIceberg:
    """Implements `lakelog.storage.iceberg.IcebergCatalog`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def table_read(self, incarnation: int, kind: TableKind = TableKind.MESSAGES) -> StoredTable | None:
        rows = await self._database.read(_SQL["table_read"], incarnation, kind.value)
        if not rows:
            return None
        row = rows[0]
        return StoredTable(version=row["version"], metadata=row["metadata"], segments=frozenset(row["segments"]))

    async def table_list(self, scope: Scope, *, topic: str | None = None) -> list[IcebergTable]:
        rows = await self._database.read(_SQL["table_list"], scope.environment_id, topic)
        return [
            IcebergTable(
                topic=row["name"], kind=TableKind(row["kind"]), version=row["version"], metadata=row["metadata"]
            )
            for row in rows
        ]

    async def table_commit(self, commit: IcebergCommit) -> bool:
        given = (commit.incarnation, commit.kind.value, commit.version, commit.metadata)
        files = (commit.added, commit.removed, commit.oldest)
        return bool(await write_change(self._database, _SQL["table_commit"], *given, *files))

    async def table_paths_known(self, paths: Collection[str]) -> set[str]:
        return {row["path"] for row in await self._database.read(_SQL["table_paths_find"], list(paths))}
