"""A `Catalog` in memory: scopes, topics and tokens; its groups are in `group_catalog`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from lakelog.errors import Conflict, TopicExists, TopicNotFound
from lakelog.model.inventory import Inventory
from lakelog.model.schema import SchemaRecord, SchemaVersion
from lakelog.model.token import Token
from lakelog.model.topic import Scope, Topic, TopicSettings
from lakelog.storage.memory.audit import MemoryAudit
from lakelog.storage.memory.clock import Clock, utcnow
from lakelog.storage.memory.cold import MemoryOrphans
from lakelog.storage.memory.group_catalog import MemoryGroupCatalog
from lakelog.storage.memory.history import MemorySamples
from lakelog.storage.memory.iceberg import MemoryIceberg
from lakelog.storage.memory.pipelines import MemoryPipelines
from lakelog.storage.memory.rejected import MemoryRejected
from lakelog.storage.memory.staging import MemoryWriteCatalog


class MemoryCatalog:
    """A `Catalog` in memory."""

    def __init__(self, clock: Clock = utcnow) -> None:
        self._clock = clock
        self.audit = MemoryAudit(clock)
        self._groups = MemoryGroupCatalog(clock, self._open_topic, self.audit)
        self.iceberg = MemoryIceberg(self._open_topic, self.audit)
        self._orphans = MemoryOrphans(clock)
        self._pipelines = MemoryPipelines(clock, self.audit)
        self._writes = MemoryWriteCatalog(clock, self._open_topic)
        self.rejected = MemoryRejected(clock, self.audit)
        self.samples = MemorySamples()
        self._newest = 0
        self._scopes: dict[tuple[str, str], Scope] = {}
        self._topics: dict[tuple[int, str], Topic] = {}
        self._deleted: dict[int, Topic] = {}
        self._forgotten: list[Topic] = []
        self._schemas: dict[int, dict[int, SchemaRecord]] = {}
        self._tokens: dict[bytes, tuple[Scope, Token]] = {}

    @property
    def groups(self) -> MemoryGroupCatalog:
        return self._groups

    @property
    def orphans(self) -> MemoryOrphans:
        return self._orphans

    @property
    def pipelines(self) -> MemoryPipelines:
        return self._pipelines

    @property
    def writes(self) -> MemoryWriteCatalog:
        return self._writes

    @property
    def level(self) -> int:
        return self._groups.level

    async def scope_find(self, project: str, environment: str) -> Scope | None:
        await asyncio.sleep(0)
        return self._scopes.get((project, environment))

    async def scope_create(self, project: str, environment: str) -> Scope:
        await asyncio.sleep(0)
        new = Scope(project=project, environment=environment, environment_id=len(self._scopes) + 1)
        return self._scopes.setdefault((project, environment), new)

    async def topic_create(
        self, scope: Scope, name: str, settings: TopicSettings, cells: Sequence[int], schema: str | None = None
    ) -> Topic:
        await asyncio.sleep(0)
        place = (scope.environment_id, name)
        if place in self._topics:
            raise TopicExists(f"Topic '{name}' already exists.", topic=name)
        self._newest += 1
        self._topics[place] = Topic(
            incarnation=self._newest,
            scope=scope,
            name=name,
            epoch=0,
            cells=tuple(cells),
            slot_cells=tuple(dict.fromkeys(cells)),
            settings=settings,
            created_at=self._clock(),
        )
        self._add_schema(self._topics[place], schema)
        self.audit.changed()
        return self._topics[place]

    async def topic_find(self, scope: Scope, name: str) -> Topic | None:
        await asyncio.sleep(0)
        return self._topics.get((scope.environment_id, name))

    async def inventory_read(self, scope: Scope) -> Inventory:
        topics = await self.topic_list(scope, limit=len(self._topics))
        groups = await self.groups.group_list(scope, limit=sys.maxsize)
        return Inventory(
            topics=tuple(topic.name for topic in topics),
            groups=tuple(group.name for group in groups),
            partitions=sum(topic.partitions for topic in topics),
        )

    async def topic_list(self, scope: Scope, *, after: str = "", limit: int = 1000) -> list[Topic]:
        await asyncio.sleep(0)
        found = [topic for topic in self._topics.values() if topic.scope == scope and topic.name > after]
        return sorted(found, key=lambda topic: topic.name)[:limit]

    async def topic_list_all(self) -> list[Topic]:
        await asyncio.sleep(0)
        return sorted(self._topics.values(), key=lambda topic: topic.incarnation)

    async def topic_list_some(self, incarnations: Collection[int]) -> list[Topic]:
        await asyncio.sleep(0)
        every = (*self._topics.values(), *self._deleted.values(), *self._forgotten)
        return [topic for topic in every if topic.incarnation in incarnations]

    async def topic_newest(self) -> int:
        await asyncio.sleep(0)
        return self._newest

    async def topic_skip(self, incarnation: int) -> None:
        await asyncio.sleep(0)
        self._newest = max(self._newest, incarnation)

    async def topic_alter(
        self, topic: Topic, settings: TopicSettings, added_cells: Sequence[int], schema: str | None = None
    ) -> Topic:
        await asyncio.sleep(0)
        present = self._present(topic)
        if present is None:
            raise TopicNotFound(f"Topic '{topic.name}' was deleted.", topic=topic.name)
        if present.version != topic.version:
            raise Conflict(
                f"Topic '{topic.name}' was altered by another caller. Read it again and retry.", topic=topic.name
            )
        altered = replace(
            present,
            settings=settings,
            cells=present.cells + tuple(added_cells),
            epoch=present.epoch + bool(added_cells),
            version=present.version + 1,
        )
        self._topics[topic.scope.environment_id, topic.name] = altered
        self._add_schema(altered, schema)
        self.audit.changed()
        return altered

    async def schema_find(self, incarnation: int, version: int) -> SchemaRecord | None:
        await asyncio.sleep(0)
        return self._schemas.get(incarnation, {}).get(version)

    async def schema_versions(self, incarnation: int, *, limit: int = 1000) -> list[SchemaVersion]:
        await asyncio.sleep(0)
        records = self._schemas.get(incarnation, {}).values()
        return [SchemaVersion(version=record.version, created_at=record.created_at) for record in records][-limit:]

    async def topic_delete(self, topic: Topic) -> bool:
        await asyncio.sleep(0)
        present = self._present(topic)
        if present is None:
            return False
        del self._topics[topic.scope.environment_id, topic.name]
        self._deleted[present.incarnation] = present
        self.audit.changed()
        return True

    async def topic_deleted(self, *, limit: int = 100) -> list[Topic]:
        await asyncio.sleep(0)
        return list(self._deleted.values())[:limit]

    async def topic_forget(self, topic: Topic) -> None:
        await asyncio.sleep(0)
        if (gone := self._deleted.pop(topic.incarnation, None)) is not None:
            self._forgotten.append(gone)
        self._schemas.pop(topic.incarnation, None)
        self._groups.forget_topic(topic.incarnation)
        self.iceberg.forget(topic.incarnation)

    async def token_create(self, scope: Scope, token: Token, token_hash: bytes) -> None:
        await asyncio.sleep(0)
        if token.parent is not None:
            kept = {key: each for key, each in self._tokens.items() if not self._is_expired_child(each[1])}
            self._tokens = kept
        self._tokens[token_hash] = (scope, token)
        self.audit.changed()

    async def token_find(self, token_hash: bytes) -> tuple[Scope, Token] | None:
        await asyncio.sleep(0)
        return self._valid([token_hash]).get(token_hash)

    async def tokens_find(self, token_hashes: Sequence[bytes]) -> dict[bytes, tuple[Scope, Token]]:
        await asyncio.sleep(0)
        return self._valid(token_hashes)

    def _valid(self, token_hashes: Sequence[bytes]) -> dict[bytes, tuple[Scope, Token]]:
        found = {each: self._tokens[each] for each in token_hashes if each in self._tokens}
        return {each: (scope, token) for each, (scope, token) in found.items() if self._has_parent(token)}

    async def token_list(self, scope: Scope) -> list[Token]:
        await asyncio.sleep(0)
        return [
            token
            for owner, token in self._tokens.values()
            if owner == scope and self._has_parent(token) and not self._is_expired_child(token)
        ]

    async def token_revoke(self, scope: Scope, token_id: str) -> bool:
        await asyncio.sleep(0)
        found = [key for key, (owner, token) in self._tokens.items() if owner == scope and token.id == token_id]
        for key in found:
            del self._tokens[key]
            self.audit.changed()
        return bool(found)

    def on_replaced(self, call: Callable[[], None]) -> None:
        """Do nothing: the data of a catalog in memory is never replaced."""

    async def check(self) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Do nothing: other users of the object continue."""

    def _has_parent(self, token: Token) -> bool:
        """Return whether the token has no parent, or one that is not revoked."""
        return token.parent is None or any(each.id == token.parent for _, each in self._tokens.values())

    def _is_expired_child(self, token: Token) -> bool:
        return token.parent is not None and token.is_over(self._clock())

    def _add_schema(self, topic: Topic, text: str | None) -> None:
        if text is not None and topic.settings.schema is not None:
            version = topic.settings.schema.version
            record = SchemaRecord(version=version, text=text, created_at=self._clock())
            self._schemas.setdefault(topic.incarnation, {})[version] = record

    def _present(self, topic: Topic) -> Topic | None:
        """Return the topic of this incarnation if it is open."""
        present = self._topics.get((topic.scope.environment_id, topic.name))
        return present if present is not None and present.incarnation == topic.incarnation else None

    def _open_topic(self, incarnation: int) -> Topic | None:
        return next((topic for topic in self._topics.values() if topic.incarnation == incarnation), None)
