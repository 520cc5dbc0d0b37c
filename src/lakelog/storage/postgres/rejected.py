"""Rejected messages on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from lakelog.model.outbox import RejectionSource
from lakelog.model.topic import Scope
from lakelog.storage.groups import storable
from lakelog.storage.outbox import StoredRejection
from lakelog.storage.postgres.audit import write_change
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load

_SQL = load("outbox")


class PostgresRejected:
    """Implements `lakelog.storage.outbox.RejectedCatalog`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def rejected_add(self, scope: Scope, rejections: Sequence[StoredRejection]) -> None:
        await self._database.write(
            _SQL["rejected_add"],
            scope.environment_id,
            [each.message_id for each in rejections],
            [each.source.value for each in rejections],
            [storable(each.topic) for each in rejections],
            [each.code for each in rejections],
            [storable(each.reason) for each in rejections],
            [each.partition for each in rejections],
            [each.payload for each in rejections],
        )

    async def rejected_list(
        self, scope: Scope, *, topic: str | None = None, after: int = 0, limit: int = 100
    ) -> list[StoredRejection]:
        rows = await self._database.read(_SQL["rejected_list"], scope.environment_id, topic, after, limit)
        return [_rejection_of(row) for row in rows]

    async def rejected_find(self, scope: Scope, message_ids: Sequence[str]) -> list[StoredRejection]:
        rows = await self._database.read(_SQL["rejected_find"], scope.environment_id, list(message_ids))
        return [_rejection_of(row) for row in rows]

    async def rejected_remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        return len(await write_change(self._database, _SQL["rejected_remove"], scope.environment_id, list(message_ids)))


def _rejection_of(row: asyncpg.Record) -> StoredRejection:
    return StoredRejection(
        message_id=row["message_id"],
        source=RejectionSource(row["source"]),
        topic=row["topic"],
        code=row["code"],
        reason=row["reason"],
        partition=row["partition"],
        payload=row["payload"],
        at=row["rejected_at"],
        number=row["number"],
    )
