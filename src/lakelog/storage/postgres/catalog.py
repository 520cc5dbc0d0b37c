"""The catalog on PostgreSQL: scopes, topics, tokens and the directory, in the default cell's database.

Groups are in `group_catalog`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import asyncpg
import msgspec

from lakelog.errors import Conflict, TopicExists, TopicNotFound
from lakelog.model.inventory import Inventory
from lakelog.model.schema import SchemaRecord, SchemaVersion
from lakelog.model.token import Token
from lakelog.model.topic import Scope, Topic, TopicSettings
from lakelog.storage.postgres.audit import PostgresAudit, write_change
from lakelog.storage.postgres.cold import PostgresOrphans
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.group_catalog import PostgresGroupCatalog
from lakelog.storage.postgres.history import PostgresSamples
from lakelog.storage.postgres.iceberg import PostgresIceberg
from lakelog.storage.postgres.pipelines import PostgresPipelines
from lakelog.storage.postgres.queries import load
from lakelog.storage.postgres.rejected import PostgresRejected
from lakelog.storage.postgres.rows import scope_of, token_of, topic_of
from lakelog.storage.postgres.staging import PostgresWriteCatalog

_SQL = load("catalog")


class PostgresCatalog:
    """Implements `lakelog.storage.store.Catalog`."""

    def __init__(self, database: Database, level: int) -> None:
        self._database = database
        self.audit = PostgresAudit(database)
        self._groups = PostgresGroupCatalog(database, level)
        self.iceberg = PostgresIceberg(database)
        self._orphans = PostgresOrphans(database)
        self._pipelines = PostgresPipelines(database)
        self._writes = PostgresWriteCatalog(database)
        self.rejected = PostgresRejected(database)
        self.samples = PostgresSamples(database)

    @property
    def groups(self) -> PostgresGroupCatalog:
        return self._groups

    @property
    def orphans(self) -> PostgresOrphans:
        return self._orphans

    @property
    def pipelines(self) -> PostgresPipelines:
        return self._pipelines

    @property
    def writes(self) -> PostgresWriteCatalog:
        return self._writes

    @property
    def level(self) -> int:
        return self._groups.level

    async def scope_find(self, project: str, environment: str) -> Scope | None:
        rows = await self._read("scope_find", project, environment)
        if not rows:
            return None
        return Scope(project=project, environment=environment, environment_id=rows[0]["environment_id"])

    async def scope_create(self, project: str, environment: str) -> Scope:
        await self._write("scope_create", project, environment)
        scope = await self.scope_find(project, environment)
        assert scope is not None, "environments are never deleted"
        return scope

    async def topic_create(
        self, scope: Scope, name: str, settings: TopicSettings, cells: Sequence[int], schema: str | None = None
    ) -> Topic:
        slots = sorted(set(cells))
        values = (_settings_text(settings), _schema_version(settings), schema)
        rows = await self._change("topic_create", scope.environment_id, name, list(cells), slots, *values)
        if not rows:
            raise TopicExists(f"Topic '{name}' already exists.", topic=name)
        return Topic(
            incarnation=rows[0]["incarnation"],
            scope=scope,
            name=name,
            epoch=rows[0]["epoch"],
            cells=tuple(cells),
            slot_cells=tuple(slots),
            settings=settings,
            created_at=rows[0]["created_at"],
        )

    async def topic_find(self, scope: Scope, name: str) -> Topic | None:
        rows = await self._read("topic_find", scope.environment_id, name)
        return topic_of(rows[0], scope) if rows else None

    async def inventory_read(self, scope: Scope) -> Inventory:
        (row,) = await self._read("inventory_read", scope.environment_id)
        return Inventory(topics=tuple(row["topics"]), groups=tuple(row["groups"]), partitions=row["partitions"])

    async def topic_list(self, scope: Scope, *, after: str = "", limit: int = 1000) -> list[Topic]:
        return [topic_of(row, scope) for row in await self._read("topic_list", scope.environment_id, after, limit)]

    async def topic_list_all(self) -> list[Topic]:
        return [topic_of(row, scope_of(row)) for row in await self._read("topic_list_all")]

    async def topic_list_some(self, incarnations: Collection[int]) -> list[Topic]:
        return [topic_of(row, scope_of(row)) for row in await self._read("topic_list_some", sorted(incarnations))]

    async def topic_newest(self) -> int:
        (row,) = await self._read("topic_newest")
        return int(row["newest"])

    async def topic_skip(self, incarnation: int) -> None:
        await self._write("topic_skip", incarnation)

    async def topic_alter(
        self, topic: Topic, settings: TopicSettings, added_cells: Sequence[int], schema: str | None = None
    ) -> Topic:
        values = (_settings_text(settings), list(added_cells), _schema_version(settings), schema)
        rows = await self._change("topic_alter", topic.incarnation, topic.version, *values)
        if not rows:
            if not await self._read("topic_check_open", topic.incarnation):
                raise TopicNotFound(f"Topic '{topic.name}' was deleted.", topic=topic.name)
            raise Conflict(
                f"Topic '{topic.name}' was altered by another caller. Read it again and retry.", topic=topic.name
            )
        epoch, version, cells = rows[0]
        return replace(topic, settings=settings, epoch=epoch, version=version, cells=tuple(cells))

    async def schema_find(self, incarnation: int, version: int) -> SchemaRecord | None:
        rows = await self._read("schema_find", incarnation, version)
        return SchemaRecord(version=version, text=rows[0]["schema"], created_at=rows[0]["created_at"]) if rows else None

    async def schema_versions(self, incarnation: int, *, limit: int = 1000) -> list[SchemaVersion]:
        rows = await self._read("schema_versions", incarnation, limit)
        return [SchemaVersion(version=row["version"], created_at=row["created_at"]) for row in reversed(rows)]

    async def topic_delete(self, topic: Topic) -> bool:
        return bool(await self._change("topic_delete", topic.incarnation))

    async def topic_deleted(self, *, limit: int = 100) -> list[Topic]:
        return [topic_of(row, scope_of(row)) for row in await self._read("topic_list_deleted", limit)]

    async def topic_forget(self, topic: Topic) -> None:
        await self._write("topic_forget", topic.incarnation)

    async def token_create(self, scope: Scope, token: Token, token_hash: bytes) -> None:
        rights = [right.value for right in token.rights]
        await self._change(
            "token_create",
            token.id,
            scope.environment_id,
            token.name,
            token_hash,
            rights,
            token.created_at,
            token.expires_at,
            token.parent,
        )

    async def token_find(self, token_hash: bytes) -> tuple[Scope, Token] | None:
        return (await self.tokens_find([token_hash])).get(token_hash)

    async def tokens_find(self, token_hashes: Sequence[bytes]) -> dict[bytes, tuple[Scope, Token]]:
        rows = await self._read("tokens_find", list(token_hashes))
        return {row["hash"]: (scope_of(row), token_of(row)) for row in rows}

    async def token_list(self, scope: Scope) -> list[Token]:
        return [token_of(row) for row in await self._read("token_list", scope.environment_id)]

    async def token_revoke(self, scope: Scope, token_id: str) -> bool:
        return bool(await self._change("token_revoke", scope.environment_id, token_id))

    def on_replaced(self, call: Callable[[], None]) -> None:
        self._database.on_replaced(call)

    async def check(self) -> None:
        await self._database.check()

    async def close(self) -> None:
        await self._database.close()

    async def _read(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        return await self._database.read(_SQL[query], *arguments)

    async def _write(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        return await self._database.write(_SQL[query], *arguments)

    async def _change(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        return await write_change(self._database, _SQL[query], *arguments)


def _schema_version(settings: TopicSettings) -> int:
    return settings.schema.version if settings.schema is not None else 0


def _settings_text(settings: TopicSettings) -> str:
    return msgspec.json.encode(settings).decode()
