"""Groups: found or made, described, altered, paused, moved, deleted; and the cache through which calls find them.

What a group has decided stands in the catalog; how far it is, in the ledgers of its partitions. Nothing here hands out
messages.
"""

from __future__ import annotations

import builtins
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import asdict, replace

from lakelog.coordinator.leasing import CommitPosition, Reply
from lakelog.engine.groups.group_topics import GroupTopics
from lakelog.engine.groups.members import Members
from lakelog.engine.groups.positions import check_held, gathered, located_at, offsets_at
from lakelog.engine.groups.progress import LedgerBook, Progress
from lakelog.engine.groups.reasons import Status, status_of_group
from lakelog.engine.groups.seek import Seeker, meant
from lakelog.engine.groups.settings_check import agree, exact, exact_filter, other_kind
from lakelog.engine.groups.skip import Skipper
from lakelog.engine.groups.summaries import Summaries
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.topics import Topics, no_partition
from lakelog.errors import (
    Conflict,
    GroupBusy,
    GroupKindDiffers,
    GroupNotFound,
    GroupSettingsDiffer,
    InvalidRequest,
    NoPosition,
)
from lakelog.model.group import Group, GroupKind, GroupSettings, GroupTopic, GroupWish, NoStart, Start
from lakelog.model.names import check_name
from lakelog.model.position import AtOffset, Latest
from lakelog.model.progress import GroupDescription, GroupSummary, PartitionProgress, TopicStats
from lakelog.model.seek import GroupPosition, Skipped, Sought
from lakelog.model.topic import Scope, Topic
from lakelog.storage.store import Catalog

_CACHE_SECONDS = 1.0
_CACHE_SIZE = 10_000
_AGREED_WISHES = 100
_TRIES = 10

Change = Callable[[Group], tuple[GroupSettings, frozenset[str]]]
"""A group's settings and paused topics, as they shall be."""


@dataclass(slots=True, kw_only=True)
class _Entry:
    """A group that was looked for a short while ago, and wishes that were found to agree with it."""

    until: float
    group: Group
    agreed: set[GroupWish] = field(default_factory=set)
    group_topics: dict[int, GroupTopic] = field(default_factory=dict)


class Groups:
    """The groups of all scopes. `changed` is told the id of a group that was altered, moved or deleted here.

    `journals` and `members` are set once, before the first call.
    """

    journals: LedgerBook
    members: Members

    def __init__(self, catalog: Catalog, extents: Extents, topics: Topics, changed: Callable[[int], None]) -> None:
        self._catalog = catalog
        self._extents = extents
        self._cells = extents.cells
        self._topics = topics
        self._changed = changed
        self._progress = Progress(extents)
        self._summaries = Summaries(extents.cells)
        self._group_topics = GroupTopics(catalog.groups, topics, self.pause)
        self._cached: dict[tuple[int, str], _Entry] = {}
        self._places: dict[int, tuple[int, str]] = {}

    # Finding --------------------------------------------------------------------------------------------------------

    async def resolve(self, scope: Scope, name: str, wish: GroupWish | None = None, *, create: bool) -> Group:
        """The group, which has to agree with the wish; made by the wish if it is missing and `create` says so."""
        entry = self._cached.get((scope.environment_id, name))
        is_fresh = entry is None or entry.until <= time.monotonic()
        if entry is None or is_fresh:
            entry = await self._find(scope, name, wish, create)
        if wish is None or wish in entry.agreed:
            return entry.group
        try:
            agree(entry.group, wish)
        except (GroupKindDiffers, GroupSettingsDiffer):
            if is_fresh:
                raise
            # A refusal from the cache proves nothing: it may have been altered since.
            self.forget(entry.group.group_id)
            return await self.resolve(scope, name, wish, create=create)
        if len(entry.agreed) < _AGREED_WISHES:
            entry.agreed.add(wish)
        return entry.group

    def is_current(self, group: Group) -> bool:
        """Whether nobody said since that it changed."""
        entry = self._cached.get((group.scope.environment_id, group.name))
        return entry is not None and entry.group is group

    def forget(self, group_id: int) -> None:
        """The group changed: it is looked for again."""
        place = self._places.pop(group_id, None)
        if place is not None:
            self._cached.pop(place, None)

    def drop(self, cell: int) -> None:
        self._progress.drop(cell)
        self.forget_all()

    def forget_all(self) -> None:
        self._cached.clear()
        self._places.clear()

    async def group_topic(self, group: Group, topic: Topic, wish: GroupWish | None = None) -> GroupTopic:
        """That the group reads the topic: from where, and the last seek. Made, with the wish's start, if missing."""
        return (await self.begin(group, topic, wish))[0]

    async def begin(self, group: Group, topic: Topic, wish: GroupWish | None) -> tuple[GroupTopic, int | None]:
        """Return the reading and, if this call created it, how many existing messages lie before its start."""
        skipped: int | None = None
        entry = self._cached.get((group.scope.environment_id, group.name))
        if entry is not None and (entry.group.group_id != group.group_id or entry.until <= time.monotonic()):
            entry = None
        found = entry.group_topics.get(topic.incarnation) if entry else None
        if found is None:
            found = await self._catalog.groups.group_topic_find(group.group_id, topic.incarnation)
            if found is None:
                found, skipped = await self._begin(group, topic, (wish.start if wish else None) or Latest())
            if entry is not None:
                entry.group_topics[topic.incarnation] = found
        return found, skipped

    # Looking --------------------------------------------------------------------------------------------------------

    async def list(self, scope: Scope, after: str = "", limit: int = 1000) -> builtins.list[GroupSummary]:
        """Return the groups behind `after`, by name, each with its lag, age, members, dead letters and status."""
        groups = await self._catalog.groups.group_list(scope, after=after, limit=limit)
        read = await self._catalog.groups.group_topic_list(*groups)
        return await self._summaries.read(groups, read, await self.members.list(groups))

    async def describe(self, scope: Scope, name: str) -> GroupDescription:
        """Return all that is known of a group."""
        group = await self._fresh(scope, name)
        members = await self.members.describe(group)
        read = await self._catalog.groups.group_topic_list(group)
        progress = await self._progress.read(self.journals, group, read, members)
        return GroupDescription(
            **group.stated(),
            **asdict(members),
            status=status_of_group(group, [Status(each.status) for each in progress]),
            progress=tuple(progress),
            dead_letters=sum([await self._progress.dead_count(group, topic) for topic, _ in read]),
        )

    async def lag(self, scope: Scope, name: str, topic: str | None = None) -> builtins.list[PartitionProgress]:
        group = await self._fresh(scope, name)
        members = await self.members.describe(group)
        if topic is None:
            read = await self._catalog.groups.group_topic_list(group)
        else:
            one = await self._topics.refresh(scope, topic)
            group_topic = await self._catalog.groups.group_topic_find(group.group_id, one.incarnation)
            if group_topic is None:
                return await self._progress.not_begun(group, one)
            read = [(one, group_topic)]
        return await self._progress.read(self.journals, group, read, members)

    async def stats(self, scope: Scope, topic: str) -> TopicStats:
        """A topic's messages, and how far each of its groups is."""
        found = await self._topics.refresh(scope, topic)
        readers = await self._catalog.groups.group_topic_list_by_topic(found)
        return await self._progress.stats(self.journals, found, readers)

    async def positions(self, scope: Scope, name: str, topic: str) -> builtins.list[GroupPosition]:
        """Return the committed offset and the position epoch of each partition; none if the group has no position."""
        group = await self._fresh(scope, name)
        found = await self._topics.refresh(scope, topic)
        group_topic = await self._catalog.groups.group_topic_find(group.group_id, found.incarnation)
        if group_topic is None:
            return []
        states, _ = await self._progress.states(self.journals, group, found, group_topic)
        return [GroupPosition(number, state.committed, state.epoch) for number, state in enumerate(states)]

    # Changing -------------------------------------------------------------------------------------------------------

    async def alter(self, scope: Scope, name: str, wish: GroupWish) -> Group:
        """Other settings: those that the wish states. An empty filter takes the filter away."""
        if wish.start is not None:
            raise InvalidRequest(f"A group that exists is moved with `lakelog groups seek {name}`, not by its start.")
        stated = {setting: getattr(wish, setting) for setting in GroupSettings.__struct_fields__}
        changes = {setting: wanted for setting, wanted in stated.items() if wanted is not None}
        if wish.filter is not None:
            changes["filter"] = exact_filter(wish.filter) if wish.filter else None

        def change(group: Group) -> tuple[GroupSettings, frozenset[str]]:
            if wish.kind is not None and wish.kind is not group.kind:
                raise other_kind(group, wish.kind)
            return replace(group.settings, **changes), group.paused

        return await self._change(scope, name, change)

    async def pause(self, scope: Scope, name: str, topic: str | None = None) -> Group:
        """From now on nothing is handed out, of the topic or of any. What is leased may be answered."""
        paused = "*" if topic is None else (await self._topics.find(scope, topic)).name
        return await self._change(scope, name, lambda group: (group.settings, group.paused | {paused}))

    async def resume(self, scope: Scope, name: str, topic: str | None = None) -> Group:
        """Goes on with the topic, or with all."""

        def change(group: Group) -> tuple[GroupSettings, frozenset[str]]:
            if topic is not None and "*" in group.paused:
                raise Conflict(
                    f"Group '{name}' is paused as a whole; resume all of it, then pause the topics that shall wait.",
                    group=name,
                )
            return group.settings, frozenset() if topic is None else group.paused - {topic}

        return await self._change(scope, name, change)

    async def pause_topic(self, scope: Scope, topic: str) -> builtins.list[Group]:
        """Pauses the topic for every group that reads it, and for those that begin to; returns the former."""
        await self._group_topics.switch(scope, topic, paused=True)
        return [await self.pause(scope, group.name, topic) for group in await self._readers(scope, topic)]

    async def resume_topic(self, scope: Scope, topic: str) -> builtins.list[Group]:
        """Goes on with the topic in every group that reads it, but for those that are paused as a whole."""
        await self._group_topics.switch(scope, topic, paused=False)
        readers = await self._readers(scope, topic)
        return [await self.resume(scope, group.name, topic) for group in readers if "*" not in group.paused]

    async def delete(self, scope: Scope, name: str) -> None:
        group = await self._fresh(scope, name)
        members = (await self.members.describe(group)).members
        if members:
            raise GroupBusy(
                f"Group '{name}' has {len(members)} members; stop them first.", group=name, members=len(members)
            )
        deleted = await self._catalog.groups.group_delete(group)
        self._tell(group)
        if not deleted:
            raise GroupNotFound(f"Group '{name}' was deleted meanwhile.", group=name)

    async def seek(
        self,
        scope: Scope,
        name: str,
        topic: str,
        to: Start | str,
        *,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> builtins.list[Sought]:
        """Moves the group: `to` is a position, or the id of a message, which moves that message's partition only.

        A new position epoch begins: open leases are closed and retries forgotten. Per partition moved: its number, the
        committed offset before, the offset now. A dry run only says what would be.
        """
        group = await self._fresh(scope, name)
        found = await self._topics.refresh(scope, topic)
        start, partitions = meant(found, to, partition)
        seeker = Seeker(self._catalog.groups, self._group_topics, self._extents, self.journals, group, found)
        if dry_run:
            return await seeker.look(start, partitions)
        try:
            return await seeker.move(start, partitions)
        finally:
            # Also when it broke off: the decision may hold already.
            self._tell(group)

    async def skip(
        self, scope: Scope, name: str, topic: str, partition: int, offset: int, *, dry_run: bool = False
    ) -> Skipped:
        """Moves the group to the offset of a partition without delivering what lies below; leases stay as they are."""
        group = await self._fresh(scope, name)
        found = await self._topics.refresh(scope, topic)
        group_topic = await self._catalog.groups.group_topic_find(group.group_id, found.incarnation)
        skipper = Skipper(self._progress, self.journals, group, found)
        return await skipper.skip(group_topic, partition, offset, dry_run=dry_run)

    async def commit(
        self,
        scope: Scope,
        name: str,
        topic: str,
        positions: Mapping[int, int],
        *,
        member_id: str | None = None,
        generation: int | None = None,
        epoch: int | None = None,
    ) -> None:
        """Sets a cursor group's positions: the offset to read next, by partition. Each partition by itself."""
        group = await self.resolve(scope, name, create=False)
        if group.kind is not GroupKind.CURSOR:
            raise other_kind(group, GroupKind.CURSOR)
        found = await self._topics.find(scope, topic, partition=max(positions, default=0))
        for partition in positions:
            if not 0 <= partition < found.partitions:
                raise no_partition(found, partition)
        if member_id is not None:
            check_held(await self.members.membership(group, member_id), topic, positions, generation)
        group_topic = await self._group_topic_for(group, found, positions)

        async def one(partition: int, offset: int) -> Reply:
            operation = CommitPosition(offset=offset, generation=generation, epoch=epoch)
            return await self.journals.run(group, group_topic, found, partition, operation)

        await gathered(one(partition, offset) for partition, offset in positions.items())

    # Parts of the above ---------------------------------------------------------------------------------------------

    async def _find(self, scope: Scope, name: str, wish: GroupWish | None, create: bool) -> _Entry:
        check_name("group", name)
        group = await self._catalog.groups.group_find(scope, name)
        if group is None:
            if not create:
                raise GroupNotFound(
                    f"There is no group '{name}'; it is made when its first member joins or consumes.", group=name
                )
            wanted = exact(wish or GroupWish())
            cells = sorted(self._cells)
            home = cells[zlib.crc32(name.encode()) % len(cells)]
            kind = wanted.kind or GroupKind.LEASE
            group = await self._catalog.groups.group_create(scope, name, kind, wanted.settings(), home)
        return self._remember(group)

    async def _fresh(self, scope: Scope, name: str) -> Group:
        return (await self._find(scope, name, None, False)).group

    def _remember(self, group: Group) -> _Entry:
        if len(self._cached) >= _CACHE_SIZE:
            self.forget_all()
        place = (group.scope.environment_id, group.name)
        entry = _Entry(until=time.monotonic() + _CACHE_SECONDS, group=group)
        self._cached[place] = entry
        self._places[group.group_id] = place
        return entry

    def _tell(self, group: Group) -> None:
        self.forget(group.group_id)
        self._changed(group.group_id)

    async def _begin(self, group: Group, topic: Topic, start: Start) -> tuple[GroupTopic, int | None]:
        if isinstance(start, NoStart):
            raise NoPosition(
                f"Group '{group.name}' has no position in topic '{topic.name}'; "
                f"give it one with `lakelog groups seek {group.name} {topic.name}`.",
                group=group.name,
                topic=topic.name,
            )
        located = await located_at(self._extents, topic, start, range(topic.partitions))
        starts = tuple(each.offset for each in located)
        wanted = GroupTopic(group_id=group.group_id, incarnation=topic.incarnation, starts=starts)
        made = await self._group_topics.create(group, topic, wanted)
        skipped = sum(each.offset - each.log_start for each in located)
        return made, skipped if made == wanted else None

    async def _group_topic_for(self, group: Group, topic: Topic, positions: Mapping[int, int]) -> GroupTopic:
        """The reading; where there is none, the first commit says where the group begins."""
        found = await self._catalog.groups.group_topic_find(group.group_id, topic.incarnation)
        if found is not None:
            return found
        starts = await offsets_at(self._extents, topic, Latest(), range(topic.partitions))
        for partition, offset in positions.items():
            starts[partition] = (await offsets_at(self._extents, topic, AtOffset(offset), [partition]))[0]
        group_topic = GroupTopic(group_id=group.group_id, incarnation=topic.incarnation, starts=tuple(starts))
        return await self._group_topics.create(group, topic, group_topic)

    async def _readers(self, scope: Scope, topic: str) -> builtins.list[Group]:
        found = await self._topics.refresh(scope, topic)
        return [group for group, _ in await self._catalog.groups.group_topic_list_by_topic(found)]

    async def _change(self, scope: Scope, name: str, change: Change) -> Group:
        for _ in range(_TRIES):
            group = await self._fresh(scope, name)
            settings, paused = change(group)
            if (settings, paused) == (group.settings, group.paused):
                return group
            try:
                altered = await self._catalog.groups.group_alter(group, settings, paused)
            except Conflict:
                continue
            self.journals.altered(altered)
            self._tell(altered)
            return altered
        raise Conflict(f"Group '{name}' was altered by others at the same time; repeat the change.", group=name)
