"""A `GroupCatalog` in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count

from lakelog.errors import Conflict, GroupNotFound
from lakelog.model.group import Group, GroupKind, GroupSettings, GroupTopic
from lakelog.model.levels import SUPPORTED
from lakelog.model.topic import Scope, Topic
from lakelog.storage.changes import ChangedVersions, KnownVersions
from lakelog.storage.groups import GROUP_MEMORY, LiveServers, ServerInfo
from lakelog.storage.memory.audit import MemoryAudit
from lakelog.storage.memory.clock import Clock


class MemoryGroupCatalog:
    """The `groups` of a `MemoryCatalog`, which provides the open topic of an incarnation."""

    def __init__(self, clock: Clock, open_topic: Callable[[int], Topic | None], audit: MemoryAudit) -> None:
        self._clock = clock
        self._audit = audit
        self._open_topic = open_topic
        self._ids = count(1)
        self._open: dict[int, Group] = {}
        self._deleted: dict[int, datetime] = {}
        self._group_topics: dict[tuple[int, int], GroupTopic] = {}
        self._servers: dict[str, tuple[ServerInfo, datetime]] = {}
        self._server_keys: list[tuple[datetime, bytes]] = []
        self.level: int = SUPPORTED
        """The feature level of the installation."""

    async def group_create(self, scope: Scope, name: str, kind: GroupKind, settings: GroupSettings, cell: int) -> Group:
        await asyncio.sleep(0)
        present = self._named(scope, name)
        if present is not None:
            return present
        group = Group(
            group_id=next(self._ids),
            scope=scope,
            name=name,
            kind=kind,
            settings=settings,
            version=1,
            cell=cell,
            paused=frozenset(),
            created_at=self._clock(),
        )
        self._open[group.group_id] = group
        self._audit.changed()
        return group

    async def group_find(self, scope: Scope, name: str) -> Group | None:
        await asyncio.sleep(0)
        return self._named(scope, name)

    async def group_list(self, scope: Scope, *, after: str = "", limit: int = 1000, contains: str = "") -> list[Group]:
        await asyncio.sleep(0)
        found = [group for group in self._open.values() if group.scope == scope and group.name > after]
        return sorted((each for each in found if contains in each.name), key=lambda group: group.name)[:limit]

    async def group_list_retention(self, *, after: int = 0, limit: int = 1000) -> list[Group]:
        await asyncio.sleep(0)
        limited = [each for each in self._open.values() if not each.settings.dead_letter_retention.is_unlimited]
        return sorted((each for each in limited if each.group_id > after), key=lambda each: each.group_id)[:limit]

    async def group_alter(self, group: Group, settings: GroupSettings, paused: frozenset[str]) -> Group:
        await asyncio.sleep(0)
        present = self._open.get(group.group_id)
        if present is None:
            raise GroupNotFound(f"Group '{group.name}' was deleted.", group=group.name)
        if present.version != group.version:
            raise Conflict(
                f"Group '{group.name}' was altered by another caller. Read it again and retry.", group=group.name
            )
        altered = replace(present, settings=settings, paused=paused, version=present.version + 1)
        self._open[group.group_id] = altered
        self._audit.changed()
        return altered

    async def group_delete(self, group: Group) -> bool:
        await asyncio.sleep(0)
        if self._open.pop(group.group_id, None) is None:
            return False
        self._deleted[group.group_id] = self._clock()
        for place in [place for place in self._group_topics if place[0] == group.group_id]:
            del self._group_topics[place]
        self._audit.changed()
        return True

    async def group_deleted(self, *, limit: int = 1000) -> list[int]:
        await asyncio.sleep(0)
        return sorted(self._deleted)[:limit]

    async def group_forget(self, group_ids: Collection[int]) -> None:
        await asyncio.sleep(0)
        over = self._clock() - GROUP_MEMORY
        for group_id in group_ids:
            if group_id in self._deleted and self._deleted[group_id] < over:
                del self._deleted[group_id]

    async def group_topic_create(self, group_topic: GroupTopic) -> GroupTopic:
        await asyncio.sleep(0)
        if group_topic.group_id not in self._open:
            raise GroupNotFound("The group was deleted.")
        place = (group_topic.group_id, group_topic.incarnation)
        if place not in self._group_topics:
            self._group_topics[place] = group_topic
            self._audit.changed()
        return self._group_topics[place]

    async def group_topic_find(self, group_id: int, incarnation: int) -> GroupTopic | None:
        await asyncio.sleep(0)
        return self._group_topics.get((group_id, incarnation))

    async def group_topic_list(self, *groups: Group) -> list[tuple[Topic, GroupTopic]]:
        await asyncio.sleep(0)
        wanted = {group.group_id for group in groups}
        group_topics = [group_topic for group_topic in self._group_topics.values() if group_topic.group_id in wanted]
        topics = [(self._open_topic(group_topic.incarnation), group_topic) for group_topic in group_topics]
        found = [(topic, group_topic) for topic, group_topic in topics if topic is not None]
        return sorted(found, key=lambda pair: (pair[1].group_id, pair[0].name))

    async def group_topic_list_by_topic(self, topic: Topic) -> list[tuple[Group, GroupTopic]]:
        await asyncio.sleep(0)
        group_topics = [
            group_topic for group_topic in self._group_topics.values() if group_topic.incarnation == topic.incarnation
        ]
        return sorted(((self._open[each.group_id], each) for each in group_topics), key=lambda pair: pair[0].name)

    async def group_topic_seek(self, group_topic: GroupTopic, targets: Sequence[int | None]) -> GroupTopic:
        await asyncio.sleep(0)
        place = (group_topic.group_id, group_topic.incarnation)
        present = self._group_topics.get(place)
        if present is None or present.epoch != group_topic.epoch:
            raise Conflict("A concurrent seek moved the group in this topic. Read its positions again.")
        self._group_topics[place] = replace(
            present, epoch=present.epoch + 1, targets=tuple(targets), timelines=group_topic.timelines
        )
        self._audit.changed()
        return self._group_topics[place]

    async def versions_read(self, known: KnownVersions) -> ChangedVersions:
        await asyncio.sleep(0)
        groups = {each for each, version in known.groups.items() if not _has(self._open.get(each), version)}
        for place, epoch in known.group_topics.items():
            present = self._group_topics.get(place)
            if present is None or present.epoch != epoch:
                groups.add(place[0])
        topics = {each for each, version in known.topics.items() if not _has(self._open_topic(each), version)}
        return ChangedVersions(groups=groups, topics=topics)

    async def server_seen(self, server: ServerInfo, *, memory_seconds: float) -> LiveServers:
        await asyncio.sleep(0)
        now = self._clock()
        self._servers[server.server_id] = (server, now)
        over = now - timedelta(seconds=memory_seconds)
        alive = [info for info, seen_at in self._servers.values() if seen_at > over or info == server]
        return LiveServers(servers=sorted(alive, key=lambda info: info.server_id), level=self.level)

    async def server_gone(self, server_id: str) -> None:
        await asyncio.sleep(0)
        self._servers.pop(server_id, None)

    async def server_keys(self, new: bytes, *, rotate_seconds: float, keep_seconds: float) -> list[bytes]:
        await asyncio.sleep(0)
        now = self._clock()
        rotated, kept = now - timedelta(seconds=rotate_seconds), now - timedelta(seconds=keep_seconds)
        is_current = any(created_at > rotated for created_at, _ in self._server_keys)
        keys = [each for each in self._server_keys if each[0] >= kept]
        self._server_keys = keys if is_current else [(now, new), *keys]
        return [secret for _, secret in self._server_keys]

    def forget_topic(self, incarnation: int) -> None:
        """Delete the group topics of a deleted topic."""
        for place in [place for place in self._group_topics if place[1] == incarnation]:
            del self._group_topics[place]

    def _named(self, scope: Scope, name: str) -> Group | None:
        return next((group for group in self._open.values() if group.scope == scope and group.name == name), None)


def _has(present: Group | Topic | None, version: int) -> bool:
    return present is not None and present.version == version
