"""The groups of the catalog on PostgreSQL, the topics that they read, and the live servers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta

import asyncpg

from lakelog.errors import Conflict, GroupNotFound, Unavailable
from lakelog.model.group import Group, GroupKind, GroupSettings, GroupTopic
from lakelog.model.topic import Scope, Topic
from lakelog.storage.changes import ChangedVersions, KnownVersions
from lakelog.storage.groups import GROUP_MEMORY, LiveServers, ServerInfo, storable
from lakelog.storage.postgres.audit import write_change
from lakelog.storage.postgres.changes import versions_read
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.group_settings import settings_text
from lakelog.storage.postgres.queries import load
from lakelog.storage.postgres.rows import group_of, group_topic_of, scope_of, topic_of

_SQL = load("group_catalog")
_CREATE_TRIES = 20


class PostgresGroupCatalog:
    """Implements `lakelog.storage.groups.GroupCatalog`."""

    def __init__(self, database: Database, level: int) -> None:
        self._database = database
        self.level = level
        """The feature level of the installation, as it was last read."""

    async def group_create(self, scope: Scope, name: str, kind: GroupKind, settings: GroupSettings, cell: int) -> Group:
        for _ in range(_CREATE_TRIES):
            rows = await self._change(
                "group_create", scope.environment_id, name, kind.value, settings_text(settings), cell
            )
            if rows:
                return group_of(rows[0], scope)
            present = await self.group_find(scope, name)
            if present is not None:
                return present
            # The group was deleted between the two statements.
        raise Unavailable(f"Group '{name}' was created and deleted repeatedly by other callers. Retry.", group=name)

    async def group_find(self, scope: Scope, name: str) -> Group | None:
        rows = await self._read("group_find", scope.environment_id, name)
        return group_of(rows[0], scope) if rows else None

    async def group_list(self, scope: Scope, *, after: str = "", limit: int = 1000, contains: str = "") -> list[Group]:
        rows = await self._read("group_list", scope.environment_id, after, limit, storable(contains))
        return [group_of(row, scope) for row in rows]

    async def group_list_retention(self, *, after: int = 0, limit: int = 1000) -> list[Group]:
        return [group_of(row, scope_of(row)) for row in await self._read("group_list_retention", after, limit)]

    async def group_alter(self, group: Group, settings: GroupSettings, paused: frozenset[str]) -> Group:
        rows = await self._change("group_alter", group.group_id, group.version, settings_text(settings), sorted(paused))
        if rows:
            return group_of(rows[0], group.scope)
        if not await self._read("group_check_open", group.group_id):
            raise GroupNotFound(f"Group '{group.name}' was deleted.", group=group.name)
        raise Conflict(
            f"Group '{group.name}' was altered by another caller. Read it again and retry.", group=group.name
        )

    async def group_delete(self, group: Group) -> bool:
        return bool(await self._change("group_delete", group.group_id))

    async def group_deleted(self, *, limit: int = 1000) -> list[int]:
        return [row["group_id"] for row in await self._read("group_list_deleted", limit)]

    async def group_forget(self, group_ids: Collection[int]) -> None:
        await self._write("group_forget", list(group_ids), GROUP_MEMORY)

    async def group_topic_create(self, group_topic: GroupTopic) -> GroupTopic:
        await self._change(
            "group_topic_create",
            group_topic.group_id,
            group_topic.incarnation,
            list(group_topic.starts),
            group_topic.epoch,
            list(group_topic.targets),
            list(group_topic.timelines),
        )
        present = await self.group_topic_find(group_topic.group_id, group_topic.incarnation)
        if present is None:
            raise GroupNotFound("The group was deleted.")
        return present

    async def group_topic_find(self, group_id: int, incarnation: int) -> GroupTopic | None:
        rows = await self._read("group_topic_find", group_id, incarnation)
        return group_topic_of(rows[0]) if rows else None

    async def group_topic_list(self, *groups: Group) -> list[tuple[Topic, GroupTopic]]:
        rows = await self._read("group_topic_list", [group.group_id for group in groups])
        return [(topic_of(row, scope_of(row)), group_topic_of(row)) for row in rows]

    async def group_topic_list_by_topic(self, topic: Topic) -> list[tuple[Group, GroupTopic]]:
        rows = await self._read("group_topic_list_by_topic", topic.incarnation)
        return [(group_of(row, topic.scope), group_topic_of(row)) for row in rows]

    async def group_topic_seek(self, group_topic: GroupTopic, targets: Sequence[int | None]) -> GroupTopic:
        rows = await self._change(
            "group_topic_seek",
            group_topic.group_id,
            group_topic.incarnation,
            group_topic.epoch,
            list(targets),
            list(group_topic.timelines),
        )
        if not rows:
            raise Conflict("A concurrent seek moved the group in this topic. Read its positions again.")
        return replace(group_topic, epoch=rows[0]["epoch"], targets=tuple(targets))

    async def versions_read(self, known: KnownVersions) -> ChangedVersions:
        return await versions_read(self._database, known)

    async def server_seen(self, server: ServerInfo, *, memory_seconds: float) -> LiveServers:
        memory = timedelta(seconds=memory_seconds)
        rows = await self._write("server_touch", server.server_id, server.address, memory, server.level)
        others = [
            ServerInfo(server_id=row["server_id"], address=row["address"], level=row["level"])
            for row in rows
            if row["server_id"] is not None
        ]
        (self.level,) = (row["level"] for row in rows if row["server_id"] is None)
        return LiveServers(servers=sorted([server, *others], key=lambda each: each.server_id), level=self.level)

    async def server_gone(self, server_id: str) -> None:
        await self._write("server_delete", server_id)

    async def server_keys(self, new: bytes, *, rotate_seconds: float, keep_seconds: float) -> list[bytes]:
        rotate, keep = timedelta(seconds=rotate_seconds), timedelta(seconds=keep_seconds)
        return [row["secret"] for row in await self._write("server_keys", new, rotate, keep)]

    async def _read(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        return await self._database.read(_SQL[query], *arguments)

    async def _write(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        return await self._database.write(_SQL[query], *arguments)

    async def _change(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        return await write_change(self._database, _SQL[query], *arguments)
