"""Topics: create, describe, alter, delete, purge, and the short-lived cache in which all calls find topics.

Each operation decides once in the catalog, then applies the decision per cell in repeatable steps. If a process dies in
between, the next caller or the maintenance agents finish the work.
"""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import to_builtins

from lakelog.engine.auditing import note_settings
from lakelog.engine.cells import Cells
from lakelog.engine.changes import Changes
from lakelog.errors import Conflict, InvalidRequest, OutcomeUnknown, PartitionNotFound, TopicExists, TopicNotFound
from lakelog.model.message import partition_of_id
from lakelog.model.names import check_name
from lakelog.model.schema import SchemaSetting
from lakelog.model.topic import Scope, Topic, TopicSettings, check_partitions
from lakelog.model.topic_info import PartitionInfo, RetentionLimits, TopicInfo
from lakelog.storage.audit import note_change
from lakelog.storage.store import Catalog, Head, HeadState, PartitionStore

_CACHE_SIZE = 10_000

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A topic, the heads of its partitions in order, and the time of the first partition's database."""

    topic: Topic
    heads: Sequence[Head]
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """The result of a purge."""

    removed: int
    described: Described


class Topics:
    """The topics of all scopes, through the catalog."""

    def __init__(
        self,
        catalog: Catalog,
        cells: dict[int, PartitionStore],
        changes: Changes | None = None,
    ) -> None:
        """Create the topics. Changes are announced through `changes`."""
        self._changes = changes or Changes(cells)
        self._catalog = catalog
        self._cells = cells
        self._cached: dict[tuple[int, str], tuple[float, Topic]] = {}
        """Topics by environment and name, with the time of the read.

        The store refuses calls for a changed or recreated topic, so a cached one can only have outdated settings.
        """
        self._keys: dict[int, tuple[int, str]] = {}
        self._forgotten = 0
        """The number of invalidations. A topic that was read during one is not cached."""
        self._changes.add_topic_cache(self.forget)

    def cached(self, scope: Scope, name: str) -> Topic | None:
        """Return the topic if it is cached."""
        entry = self._cached.get((scope.environment_id, name))
        return entry[1] if entry and entry[0] + self._changes.cache_seconds > time.monotonic() else None

    def drop(self, cell: int) -> None:
        """Drop all cached topics, because the catalog may be in the same database as the cell."""
        self.forget(None)

    def forget(self, incarnation: int | None) -> None:
        """Drop the cached topic, because it changed. None drops all topics."""
        self._forgotten += 1
        if incarnation is None:
            self._cached.clear()
            self._keys.clear()
        elif (key := self._keys.pop(incarnation, None)) is not None:
            self._cached.pop(key, None)

    def confirm(self, topic: Topic, at: float) -> None:
        """Trust the cached topic for longer, because it was found unchanged at that time."""
        key = (topic.scope.environment_id, topic.name)
        entry = self._cached.get(key)
        if entry is not None and (entry[1].incarnation, entry[1].version) == (topic.incarnation, topic.version):
            self._cached[key] = (max(entry[0], at), entry[1])

    async def find(self, scope: Scope, name: str, *, partition: int = 0) -> Topic:
        """Return the topic from the cache, or from the catalog if the cached one is too old or lacks the partition."""
        topic = self.cached(scope, name)
        if topic is not None and partition < topic.partitions:
            return topic
        return await self.refresh(scope, name)

    async def refresh(self, scope: Scope, name: str) -> Topic:
        check_name("topic", name)
        at, forgotten = time.monotonic(), self._forgotten
        topic = await self._catalog.topic_find(scope, name)
        if topic is None:
            self._cached.pop((scope.environment_id, name), None)
            raise TopicNotFound(
                f"Topic '{name}' does not exist. Create it with `lakelog topics create {name}`.", topic=name
            )
        if isinstance(self._cells, Cells):
            self._cells.check_topic(topic)
        if forgotten == self._forgotten:
            self._remember(topic, at)
        return topic

    async def create(
        self,
        scope: Scope,
        name: str,
        partitions: int = 1,
        settings: TopicSettings | None = None,
        *,
        schema: str | None = None,
        if_missing: bool = False,
    ) -> Topic:
        """Create a topic. `schema` is the version of its schema that the settings name, as JSON."""
        check_name("topic", name)
        cells = self._place(0, check_partitions(partitions))
        at, forgotten = time.monotonic(), self._forgotten
        try:
            note_change(None, {"partitions": len(cells), **to_builtins(settings or TopicSettings())})
            topic = await self._catalog.topic_create(scope, name, settings or TopicSettings(), cells, schema)
        except TopicExists:
            if not if_missing:
                raise
            topic = await self.refresh(scope, name)
        await self.ensure_heads(topic)
        if forgotten == self._forgotten:
            self._remember(topic, at)
        return topic

    async def list(self, scope: Scope, *, after: str = "", limit: int = 1000) -> builtins.list[Topic]:
        return await self._catalog.topic_list(scope, after=after, limit=limit)

    async def describe(self, scope: Scope, name: str) -> Described:
        return await self._described(await self.refresh(scope, name))

    async def alter(
        self,
        scope: Scope,
        name: str,
        *,
        partitions: int | None = None,
        change: Callable[[TopicSettings], TopicSettings] = lambda settings: settings,
    ) -> Topic:
        """Change settings or add partitions.

        Removing partitions is refused, because it would break the order of keys. A change is applied again to settings
        that another caller wrote at the same time; only two callers who add partitions conflict.
        """
        topic = await self.refresh(scope, name)
        while True:
            try:
                altered = await self._alter(topic, partitions, change)
                break
            except Conflict:
                before, topic = topic, await self.refresh(scope, name)
                if topic.version == before.version or (partitions is not None and topic.epoch != before.epoch):
                    raise
            except OutcomeUnknown:
                self._changes.topic_changed(topic.incarnation)
                raise
        self._changes.topic_changed(altered.incarnation)
        await self.ensure_heads(altered)
        if partitions is not None:
            # Even if none were added: a repeat finishes what was interrupted between the catalog and the cells.
            await self._per_cell(altered, lambda store, pids: store.epoch_raise(pids, altered.epoch))
        return altered

    async def _alter(
        self, topic: Topic, partitions: int | None, change: Callable[[TopicSettings], TopicSettings]
    ) -> Topic:
        added: Sequence[int] = ()
        if partitions is not None:
            if check_partitions(partitions) < topic.partitions:
                raise InvalidRequest(
                    f"Topic '{topic.name}' has {topic.partitions} partitions, and they cannot become fewer."
                )
            added = self._place(topic.partitions, partitions)
        settings = change(topic.settings)
        before = {"partitions": topic.partitions, **to_builtins(topic.settings)}
        note_settings(before, {"partitions": topic.partitions + len(added), **to_builtins(settings)})
        return await self._catalog.topic_alter(topic, settings, added)

    async def write_schema(self, topic: Topic, setting: SchemaSetting | None, schema: str | None) -> Topic:
        """Write the schema of a topic. Raise `Conflict` if the topic changed since it was read."""
        try:
            settings = replace(topic.settings, schema=setting)
            note_settings(topic.settings, settings)
            return await self._catalog.topic_alter(topic, settings, (), schema)
        finally:
            # Also after an unknown outcome.
            self._changes.topic_changed(topic.incarnation)

    async def delete(self, scope: Scope, name: str) -> None:
        topic = await self.refresh(scope, name)
        note_change({"partitions": topic.partitions, **to_builtins(topic.settings)}, None)
        try:
            deleted = await self._catalog.topic_delete(topic)
        finally:
            # Also after an unknown outcome.
            self._changes.topic_changed(topic.incarnation)
        if not deleted:
            raise TopicNotFound(f"Topic '{name}' was deleted during the call.", topic=name)
        await self.close_deleted(topic)

    async def close_deleted(self, topic: Topic) -> None:
        """Apply a delete to the cells. It is safe to repeat."""
        await self._per_cell(topic, lambda store, pids: store.heads_close(pids, HeadState.DELETED))
        await self._catalog.topic_forget(topic)

    async def purge(self, scope: Scope, name: str) -> Purge:
        """Make everything published so far unreadable; offsets continue."""
        before = await self.describe(scope, name)
        ends = {head.pid: head.next_offset for head in before.heads}
        removed = await self._per_cell(
            before.topic, lambda store, pids: store.log_start_raise([(pid, ends[pid]) for pid in pids if pid in ends])
        )
        total = sum(count for cell in removed for _, count in cell)
        for partition, cell in enumerate(before.topic.cells):
            self._changes.partition_moved(cell, before.topic.pid(partition))
        return Purge(removed=total, described=await self._described(before.topic))

    async def ensure_heads(self, topic: Topic) -> None:
        await self._per_cell(topic, lambda store, pids: store.heads_create(pids, topic.epoch))

    async def _described(self, topic: Topic) -> Described:
        heads = await self._per_cell(topic, lambda store, pids: store.heads_read(pids))
        ordered = sorted((head for cell in heads for head in cell), key=lambda head: head.pid)
        return Described(topic=topic, heads=ordered, now=await self._cells[topic.cells[0]].clock())

    async def _per_cell(
        self, topic: Topic, apply: Callable[[PartitionStore, builtins.list[int]], Awaitable[Found]]
    ) -> builtins.list[Found]:
        shares = topic.pids_by_cell().items()
        return builtins.list(await asyncio.gather(*(apply(self._cells[cell], pids) for cell, pids in shares)))

    def _place(self, first: int, end: int) -> builtins.list[int]:
        cells = sorted(self._cells)
        return [cells[partition % len(cells)] for partition in range(first, end)]

    def _remember(self, topic: Topic, at: float) -> None:
        if len(self._cached) >= _CACHE_SIZE:
            self.forget(None)
        key = (topic.scope.environment_id, topic.name)
        self._cached[key] = (at, topic)
        self._keys[topic.incarnation] = key


def no_partition(topic: Topic, partition: int) -> PartitionNotFound:
    return PartitionNotFound(
        f"Topic '{topic.name}' has partitions 0 to {topic.partitions - 1}, not {partition}.",
        topic=topic.name,
        partition=partition,
    )


def topic_info(topic: Topic, heads: Sequence[Head] | None = None, now: datetime | None = None) -> TopicInfo:
    """Return the description of a topic, with its partitions if their heads are given."""
    settings = topic.settings
    return TopicInfo(
        name=topic.name,
        incarnation=topic.incarnation,
        partitions=topic.partitions,
        epoch=topic.epoch,
        limits=RetentionLimits.of(settings.retention),
        key_field=settings.key_field,
        idempotency_memory_ms=settings.idempotency_memory // timedelta(milliseconds=1),
        tags=settings.tags,
        metadata=settings.metadata,
        created_at=topic.created_at,
        schema_version=None if settings.schema is None else settings.schema.version,
        compatibility=None if settings.schema is None else settings.schema.compatibility,
        columns=settings.columns,
        masks=settings.masks,
        described=None if heads is None else partition_infos(heads),
        now=now,
    )


def partition_infos(heads: Sequence[Head]) -> tuple[PartitionInfo, ...]:
    """Return the ends of partitions. The head of an empty log has the time of its creation, which is not shown."""
    return tuple(
        PartitionInfo(
            partition=partition_of_id(head.pid),
            log_start=head.log_start,
            high_watermark=head.next_offset,
            bytes=head.total_bytes,
            appended_at=head.appended_at if head.next_offset else None,
        )
        for head in heads
    )
