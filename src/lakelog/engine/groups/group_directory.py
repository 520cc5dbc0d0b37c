"""The directory of groups: finds or creates groups and their topics, and keeps those that calls use in a short cache.

Every call of a group uses it. It changes settings with optimistic locking, and does not move positions.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import asdict

from lakelog.engine.auditing import creating_group, note_settings
from lakelog.engine.cells import Cells
from lakelog.engine.changes import Changes
from lakelog.engine.coalescing import SharedCalls
from lakelog.engine.groups.positions import Located, located_at
from lakelog.engine.groups.settings_check import (
    agree,
    agree_in_topics,
    exact_of_topic,
    first_settings,
    with_stated,
)
from lakelog.engine.leasing.journals import Journals
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.topics import Topics
from lakelog.errors import Conflict, GroupKindDiffers, GroupNotFound, GroupSettingsDiffer, NoPosition, OutcomeUnknown
from lakelog.model.group import (
    Group,
    GroupKind,
    GroupSettings,
    GroupTopic,
    NewGroupSettings,
    NoStart,
    RequestedSettings,
    Start,
)
from lakelog.model.levels import FeatureLevel
from lakelog.model.names import check_name
from lakelog.model.topic import Scope, Topic
from lakelog.reporting import report_created_group
from lakelog.storage.store import Catalog

_CACHE_SIZE = 10_000
_AGREED_SETTINGS = 100
_TRIES = 10
_NOTHING = NewGroupSettings()

Change = Callable[[Group], tuple[GroupSettings, frozenset[str]]]
"""Return the new settings and the new paused topics of a group."""


@dataclass(slots=True, kw_only=True)
class _CachedGroup:
    """A group that was found recently, and the stated settings that agree with it."""

    at: float
    """When the group was read, or last found unchanged."""
    group: Group
    agreed: set[tuple[object, ...]] = field(default_factory=set)
    group_topics: dict[int, GroupTopic] = field(default_factory=dict)


class GroupDirectory:
    """Finds the groups of all scopes for calls."""

    def __init__(
        self, catalog: Catalog, extents: Extents, topics: Topics, journals: Journals, changes: Changes
    ) -> None:
        self._catalog = catalog
        self._extents = extents
        self._topics = topics
        self._journals = journals
        self._changes = changes
        self._cached: dict[tuple[int, str], _CachedGroup] = {}
        self._keys: dict[int, tuple[int, str]] = {}
        self._forgotten = 0
        """The number of invalidations. A group that was read during one is not cached."""
        self._finding: SharedCalls[_CachedGroup] = SharedCalls()
        self._beginning: SharedCalls[tuple[GroupTopic, int | None]] = SharedCalls()
        changes.add_group_cache(self.forget)

    async def resolve(
        self,
        scope: Scope,
        name: str,
        requested: RequestedSettings = _NOTHING,
        *,
        kind: GroupKind | None = None,
        create: bool,
    ) -> Group:
        """Return the group. It must agree with the request. A missing group is created if `create` is set.

        A filter, retries and dead letters that the request states for topics become the settings of the group in those
        topics that it does not read yet.
        """
        entry = self._cached.get((scope.environment_id, name))
        is_fresh = entry is None or self._is_old(entry)
        if entry is None or is_fresh:
            entry = await self._fresh(scope, name, requested, kind, create)
        stated = (kind, *requested.stated_topics, *requested.stated)
        if stated in entry.agreed:
            return entry.group
        try:
            agree(entry.group, requested, kind)
            if await self._adopt(entry.group, requested):
                return await self.resolve(scope, name, requested, kind=kind, create=create)
            agree_in_topics(entry.group, requested)
        except (GroupKindDiffers, GroupSettingsDiffer):
            if is_fresh:
                raise
            # The cached group may be out of date: it may have been altered since.
            self.forget(entry.group.group_id)
            return await self.resolve(scope, name, requested, kind=kind, create=create)
        if len(entry.agreed) < _AGREED_SETTINGS:
            entry.agreed.add(stated)
        return entry.group

    async def _adopt(self, group: Group, requested: RequestedSettings) -> bool:
        """Give the group the settings that the request states for topics that it does not read yet.

        Return whether there was such a topic. It has an entry then, also if its settings are those of the group, so
        that one of two callers that state different settings at the same time is refused.
        """
        if not self.has_topic_settings or not exact_of_topic(requested):
            return False
        new = [topic for topic in requested.stated_topics if topic not in group.settings.topics]
        new = [topic for topic in new if not await self._reads(group, topic)]
        if not new:
            return False

        def change(now: Group) -> tuple[GroupSettings, frozenset[str]]:
            settings = now.settings
            for topic in new:
                settings = with_stated(settings, topic, requested)
            return settings, now.paused

        await self.change(group.scope, group.name, change)
        return True

    async def _reads(self, group: Group, topic: str) -> bool:
        incarnation = (await self._topics.find(group.scope, topic)).incarnation
        return await self._catalog.groups.group_topic_find(group.group_id, incarnation) is not None

    @property
    def level(self) -> int:
        """The feature level of the installation."""
        return self._catalog.level

    @property
    def has_topic_settings(self) -> bool:
        """Whether groups may have settings for single topics: servers of an older level would not apply them."""
        return self.level >= FeatureLevel.THIRD

    def is_current(self, group: Group) -> bool:
        """Return whether no change of the group was announced since the lookup began."""
        entry = self._cached.get((group.scope.environment_id, group.name))
        return entry is not None and entry.group is group

    def forget(self, group_id: int | None) -> None:
        """Drop the cached group, because it changed. None drops all groups."""
        self._forgotten += 1
        if group_id is None:
            self._cached.clear()
            self._keys.clear()
        elif (key := self._keys.pop(group_id, None)) is not None:
            self._cached.pop(key, None)

    def confirm(self, group: Group, at: float) -> None:
        """Trust the cached group for longer, because it and its positions were found unchanged at that time."""
        entry = self._cached.get((group.scope.environment_id, group.name))
        if entry is not None and (entry.group.group_id, entry.group.version) == (group.group_id, group.version):
            entry.at = max(entry.at, at)

    def _is_old(self, entry: _CachedGroup) -> bool:
        return entry.at + self._changes.cache_seconds <= time.monotonic()

    async def group_topic(self, group: Group, topic: Topic, requested: NewGroupSettings = _NOTHING) -> GroupTopic:
        """Return where the group began in the topic, and its last seek. Create it with the start if it is missing."""
        return (await self.begin(group, topic, requested))[0]

    async def begin(self, group: Group, topic: Topic, requested: NewGroupSettings) -> tuple[GroupTopic, int | None]:
        """Return the group topic and, if this call created it, how many existing messages lie before its start.

        Calls that arrive together share one lookup.
        """
        skipped: int | None = None
        entry = self._cached.get((group.scope.environment_id, group.name))
        if entry is not None and (entry.group.group_id != group.group_id or self._is_old(entry)):
            entry = None
        found = entry.group_topics.get(topic.incarnation) if entry else None
        if found is None:
            # A call that began before a change of the group is not shared.
            key = (group.group_id, topic.incarnation, requested.start, self._forgotten)
            found, skipped = await self._beginning.get(key, lambda: self._found_or_begun(group, topic, requested.start))
            if entry is not None:
                entry.group_topics[topic.incarnation] = found
        return found, skipped

    async def _found_or_begun(self, group: Group, topic: Topic, start: Start) -> tuple[GroupTopic, int | None]:
        found = await self._catalog.groups.group_topic_find(group.group_id, topic.incarnation)
        return (found, None) if found is not None else await self._begin(group, topic, start)

    async def change(self, scope: Scope, name: str, change: Change) -> Group:
        """Set the settings and paused topics that `change` returns for the current group."""
        for _ in range(_TRIES):
            group = await self.find(scope, name)
            settings, paused = change(group)
            if (settings, paused) == (group.settings, group.paused):
                return group
            note_settings(_settings(group.settings, group.paused), _settings(settings, paused))
            try:
                altered = await self._catalog.groups.group_alter(group, settings, paused)
            except Conflict:
                continue
            except OutcomeUnknown:
                self.changed(group)
                raise
            self._journals.altered(altered)
            self.changed(altered)
            return altered
        raise Conflict(f"Group '{name}' was altered by another call at the same time. Repeat the change.", group=name)

    async def create_group_topic(self, group: Group, topic: Topic, wanted: GroupTopic) -> GroupTopic:
        """Create the group topic and return it, or return the existing one if another caller was first.

        If the topic is paused for all groups, the group is paused in it too.
        """
        is_paused = await self._pause_with(group, topic)
        made = await self._catalog.groups.group_topic_create(wanted)
        if not is_paused:
            # A pause that began in between either finds the group topic or is found here.
            await self._pause_with(group, topic)
        return made

    async def pause(self, scope: Scope, name: str, topic: str) -> Group:
        """Stop delivering messages of the topic to the group; `*` means all topics. Leased messages may be answered."""
        return await self.change(scope, name, lambda group: (group.settings, group.paused | {topic}))

    def changed(self, group: Group) -> None:
        """Announce that the group was altered, moved or deleted."""
        self._changes.group_changed(group.group_id)

    async def _pause_with(self, group: Group, topic: Topic) -> bool:
        """Pause the topic for the group if it is paused for all groups. Return whether it was paused."""
        now = await self._topics.refresh(topic.scope, topic.name)
        if now.settings.paused:
            await self.pause(group.scope, group.name, topic.name)
        return now.settings.paused

    async def _fresh(
        self, scope: Scope, name: str, requested: RequestedSettings, kind: GroupKind | None, create: bool
    ) -> _CachedGroup:
        """Return the group from the catalog. Calls of one page that arrive together share one lookup."""
        if create:
            return await self._find(scope, name, requested, kind, create)
        # A call that began before a change of the group is not shared.
        key = (scope.environment_id, name, self._forgotten)
        return await self._finding.get(key, lambda: self._find(scope, name, _NOTHING, None, False))

    async def _find(
        self, scope: Scope, name: str, requested: RequestedSettings, kind: GroupKind | None, create: bool
    ) -> _CachedGroup:
        check_name("group", name)
        at, forgotten = time.monotonic(), self._forgotten
        group = await self._catalog.groups.group_find(scope, name)
        if group is None:
            if not create:
                raise GroupNotFound(
                    f"Group '{name}' does not exist; it is created when its first member joins or consumes.", group=name
                )
            settings = first_settings(requested, has_topics=self.has_topic_settings)
            cells = sorted(self._extents.cells)
            home = cells[zlib.crc32(name.encode()) % len(cells)]
            with creating_group(scope, name, settings):
                group = await self._catalog.groups.group_create(scope, name, kind or GroupKind.LEASE, settings, home)
            report_created_group(name)
        if isinstance(self._extents.cells, Cells):
            self._extents.cells.check_group(group)
        entry = _CachedGroup(at=at, group=group)
        if forgotten == self._forgotten:
            self._remember(entry)
        return entry

    async def find(self, scope: Scope, name: str) -> Group:
        """Return the group as the catalog has it now."""
        return (await self._find(scope, name, _NOTHING, None, False)).group

    def _remember(self, entry: _CachedGroup) -> None:
        if len(self._cached) >= _CACHE_SIZE:
            self.forget(None)
        key = (entry.group.scope.environment_id, entry.group.name)
        self._cached[key] = entry
        self._keys[entry.group.group_id] = key

    async def _begin(self, group: Group, topic: Topic, start: Start) -> tuple[GroupTopic, int | None]:
        if isinstance(start, NoStart):
            raise NoPosition(
                f"Group '{group.name}' has no position in topic '{topic.name}'; "
                f"give it one with `lakelog groups seek {group.name} {topic.name}`.",
                group=group.name,
                topic=topic.name,
            )
        located = await located_at(self._extents, topic, start, range(topic.partitions))
        wanted = begun_at(group, topic, located)
        made = await self.create_group_topic(group, topic, wanted)
        skipped = sum(each.offset - each.log_start for each in located)
        return made, skipped if made == wanted else None


def _settings(settings: GroupSettings, paused: frozenset[str]) -> dict[str, object]:
    """Return the settings of a group as its audit records show them."""
    return {**asdict(settings), "paused": sorted(paused)}


def begun_at(group: Group, topic: Topic, located: Sequence[Located]) -> GroupTopic:
    """Return the group topic of a group that begins at these positions, one for each partition."""
    return GroupTopic(
        group_id=group.group_id,
        incarnation=topic.incarnation,
        starts=tuple(each.offset for each in located),
        timelines=tuple(each.timeline for each in located),
    )
