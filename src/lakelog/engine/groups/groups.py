"""Groups: describe, alter, pause, move and delete them, and report their progress.

The decisions of a group are in the catalog, and its progress is in the journals of its partitions. The module delivers
no messages.
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Collection, Mapping, Sequence

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from lakelog.coordinator.leasing.operations import CommitPosition, Reply
from lakelog.engine.groups.group_directory import GroupDirectory, begun_at
from lakelog.engine.groups.members import Members
from lakelog.engine.groups.positions import check_held, gathered, located_at
from lakelog.engine.groups.progress import ProgressReader
from lakelog.engine.groups.reasons import Status, status_of_group
from lakelog.engine.groups.seek import Seeker, meant
from lakelog.engine.groups.settings_check import altered, other_kind
from lakelog.engine.groups.skip import Skipper
from lakelog.engine.groups.stuck import together
from lakelog.engine.groups.summaries import Summaries
from lakelog.engine.history.timeline import Timeline
from lakelog.engine.leasing.consuming import MembersInfo
from lakelog.engine.log.topics import Topics, no_partition
from lakelog.errors import Conflict, GroupBusy, GroupNotFound, LakelogError
from lakelog.model.attention import concerns_of
from lakelog.model.group import AlterGroupRequest, Group, GroupKind, GroupSettings, GroupTopic, Start
from lakelog.model.levels import FeatureLevel, check_level
from lakelog.model.position import AtOffset, Latest
from lakelog.model.progress import GroupDescription, GroupSummary, PartitionProgress, TopicStats
from lakelog.model.seek import CommitRequest, GroupPosition, Skipped, Sought
from lakelog.model.topic import Scope, Topic
from lakelog.storage.audit import note_change
from lakelog.storage.store import DEFAULT_CELL, Catalog


class Groups:
    """The operations on groups, except those of members, leases and dead letters."""

    def __init__(
        self,
        catalog: Catalog,
        directory: GroupDirectory,
        topics: Topics,
        members: Members,
        progress: ProgressReader,
        summaries: Summaries | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        self._catalog = catalog
        self._directory = directory
        self._topics = topics
        self._members = members
        self._progress = progress
        self._journals = progress.journals
        self._extents = progress.extents
        self._summaries = summaries or Summaries(progress.extents.cells)
        self._timeline = timeline or Timeline(catalog, progress.extents.cells, directory)

    def drop(self, cell: int) -> None:
        """Drop everything that was read from the cell."""
        self._progress.drop(cell)
        self._directory.forget(None)

    # Looking --------------------------------------------------------------------------------------------------------

    async def list(
        self,
        scope: Scope,
        after: str = "",
        limit: int = 1000,
        *,
        contains: str = "",
        with_lags: bool = False,
        explained: int = 0,
    ) -> builtins.list[GroupSummary]:
        """Return the groups whose names follow `after`, each with its lag, age, members, dead letters and status.

        `contains` is a text in their names. `with_lags` adds the lags of the last hour. `explained` is how many of
        those that need attention say why they wait.
        """
        groups = await self._catalog.groups.group_list(scope, after=after, limit=limit, contains=contains)
        read = await self._catalog.groups.group_topic_list(*groups)
        silent = await self._summaries.silent_cells(groups, read)
        members = await self._members.infos(groups, silent)
        listed = {group_id: each.members for group_id, each in members.items()}
        found = await self._summaries.read(groups, read, listed, silent)
        if explained:
            found = await self._explained(groups, read, members, silent, found, explained)
        if not with_lags:
            return found
        lags = await self._timeline.lags(read)
        pairs = zip(groups, found, strict=True)
        return [replace(each, lags=tuple(lags.get(group.group_id, ()))) for group, each in pairs]

    async def _explained(
        self,
        groups: Sequence[Group],
        read: Sequence[tuple[Topic, GroupTopic]],
        members: Mapping[int, MembersInfo],
        silent: Collection[int],
        found: Sequence[GroupSummary],
        most: int,
    ) -> builtins.list[GroupSummary]:
        """Return the summaries with the causes of those that need attention most."""
        by_name = {group.name: group for group in groups if group.group_id in members}
        concerns = concerns_of(found, await self._extents.cells[DEFAULT_CELL].clock())
        # A progress that cannot be read has no cause.
        known = [each.name for each in concerns if each.name in by_name and each.status != Status.UNREADABLE]
        chosen = {by_name[name].group_id: by_name[name] for name in known[:most]}
        topics: dict[int, builtins.list[tuple[Topic, GroupTopic]]] = {group_id: [] for group_id in chosen}
        for pair in read:
            if pair[1].group_id in topics:
                topics[pair[1].group_id].append(pair)
        asked = [(group, topics[group_id], members[group_id]) for group_id, group in chosen.items()]
        try:
            progress = await self._progress.read_all(asked, silent)
        except LakelogError:
            # A cell stopped responding, or a newer version wrote since. The list is about all groups.
            return [*found]
        causes = {
            group.name: together(each.stuck for each in partitions if each.stuck is not None)
            for group, partitions in zip(chosen.values(), progress, strict=True)
        }
        return [replace(each, stuck=causes[each.name]) if each.name in causes else each for each in found]

    async def topics(self, scope: Scope, name: str, after: str = "", limit: int = 1000) -> builtins.list[Topic]:
        """Return the topics that a group reads, sorted by name, starting after `after`."""
        group = await self._directory.resolve(scope, name, create=False)
        read = await self._catalog.groups.group_topic_list(group)
        return [topic for topic, _ in read if topic.name > after][:limit]

    async def describe(self, scope: Scope, name: str) -> GroupDescription:
        """Return the whole description of a group."""
        group = await self._directory.find(scope, name)
        members = await self._members.describe(group)
        read = await self._catalog.groups.group_topic_list(group)
        silent = await self._progress.silent_cells(topic for topic, _ in read)
        progress = await self._progress.read(group, read, members, silent)
        return GroupDescription(
            **group.stated(),
            **asdict(members),
            status=status_of_group(group, [Status(each.status) for each in progress]),
            progress=tuple(progress),
            stuck=together(each.stuck for each in progress if each.stuck is not None),
            dead_letters=await self._progress.dead_count(group, [topic for topic, _ in read], silent),
        )

    async def lag(self, scope: Scope, name: str, topic: str | None = None) -> builtins.list[PartitionProgress]:
        group = await self._directory.find(scope, name)
        members = await self._members.describe(group)
        if topic is None:
            read = await self._catalog.groups.group_topic_list(group)
        else:
            one = await self._topics.refresh(scope, topic)
            group_topic = await self._catalog.groups.group_topic_find(group.group_id, one.incarnation)
            if group_topic is None:
                return await self._progress.not_begun(group, one)
            read = [(one, group_topic)]
        silent = await self._progress.silent_cells(found for found, _ in read)
        return await self._progress.read(group, read, members, silent)

    async def stats(self, scope: Scope, topic: str, *, described: bool = False) -> TopicStats:
        """Return the figures of a topic, the progress of each of its groups and, if `described`, its description."""
        found = await self._topics.refresh(scope, topic)
        readers = await self._catalog.groups.group_topic_list_by_topic(found)
        return await self._progress.stats(found, readers, described=described)

    async def positions(self, scope: Scope, name: str, topic: str) -> builtins.list[GroupPosition]:
        """Return the committed offset and position epoch of each partition; nothing if the group has no position."""
        group = await self._directory.find(scope, name)
        found = await self._topics.refresh(scope, topic)
        group_topic = await self._catalog.groups.group_topic_find(group.group_id, found.incarnation)
        if group_topic is None:
            return []
        states, _ = await self._progress.states(group, found, group_topic)
        return [GroupPosition(number, state.committed, state.epoch) for number, state in enumerate(states)]

    # Changing -------------------------------------------------------------------------------------------------------

    async def alter(self, scope: Scope, request: AlterGroupRequest) -> Group:
        """Change the settings that the request states, of the group or of one topic. An empty filter removes it."""
        if request.topic is not None:
            check_level(self._catalog.level, FeatureLevel.THIRD, "Settings of a group for one topic")
            if not request.inherit:
                await self._topics.find(scope, request.topic)
        return await self._directory.change(
            scope, request.group, lambda group: (altered(group.settings, request), group.paused)
        )

    async def pause(self, scope: Scope, name: str, topic: str | None = None) -> Group:
        """Stop delivering messages of the topic, or of all topics. Leased messages can be answered."""
        paused = "*" if topic is None else (await self._topics.find(scope, topic)).name
        return await self._directory.pause(scope, name, paused)

    async def resume(self, scope: Scope, name: str, topic: str | None = None) -> Group:
        """Resume the topic, or all topics."""

        def change(group: Group) -> tuple[GroupSettings, frozenset[str]]:
            if topic is not None and "*" in group.paused:
                raise Conflict(
                    f"Group '{name}' is paused as a whole; resume all of it, then pause the topics that shall wait.",
                    group=name,
                )
            return group.settings, frozenset() if topic is None else group.paused - {topic}

        return await self._directory.change(scope, name, change)

    async def pause_topic(self, scope: Scope, topic: str) -> builtins.list[Group]:
        """Pause the topic for every group that reads it or starts to read it; return the groups that read it."""
        await self._switch(scope, topic, paused=True)
        return [await self.pause(scope, group.name, topic) for group in await self._readers(scope, topic)]

    async def resume_topic(self, scope: Scope, topic: str) -> builtins.list[Group]:
        """Resume the topic in every group that reads it, except groups that are paused as a whole."""
        await self._switch(scope, topic, paused=False)
        readers = await self._readers(scope, topic)
        return [await self.resume(scope, group.name, topic) for group in readers if "*" not in group.paused]

    async def delete(self, scope: Scope, name: str) -> None:
        group = await self._directory.find(scope, name)
        members = (await self._members.describe(group)).members
        if members:
            raise GroupBusy(
                f"Group '{name}' has {len(members)} members; stop them first.", group=name, members=len(members)
            )
        note_change(to_builtins(group.settings), None)
        deleted = await self._catalog.groups.group_delete(group)
        self._directory.changed(group)
        if not deleted:
            raise GroupNotFound(f"Group '{name}' was deleted during the call.", group=name)

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
        """Move the group to a position, or to the id of a message, which moves only that message's partition.

        A new position epoch begins: open leases are revoked and retries are forgotten. Return the partition, the
        committed offset before and the offset after for each moved partition. A dry run changes nothing.
        """
        group = await self._directory.find(scope, name)
        found = await self._topics.refresh(scope, topic)
        start, partitions = meant(found, to, partition)
        seeker = Seeker(self._catalog.groups, self._directory, self._progress, group, found)
        if dry_run:
            return await seeker.look(start, partitions)
        try:
            return await seeker.move(start, partitions)
        finally:
            # Even if it was interrupted: the decision may already be stored.
            self._directory.changed(group)

    async def skip(
        self, scope: Scope, name: str, topic: str, partition: int, offset: int, *, dry_run: bool = False
    ) -> Skipped:
        """Move the group to an offset of a partition without delivering the messages below it; leases are kept."""
        group = await self._directory.find(scope, name)
        found = await self._topics.refresh(scope, topic)
        group_topic = await self._catalog.groups.group_topic_find(group.group_id, found.incarnation)
        skipper = Skipper(self._progress, group, found)
        return await skipper.skip(group_topic, partition, offset, dry_run=dry_run)

    async def commit(self, scope: Scope, request: CommitRequest) -> None:
        """Set the positions of a cursor group: the next offset to read, by partition. Partitions are independent."""
        positions = request.by_partition()
        group = await self._directory.resolve(scope, request.group, create=False)
        if group.kind is not GroupKind.CURSOR:
            raise other_kind(group, GroupKind.CURSOR)
        found = await self._topics.find(scope, request.topic, partition=max(positions, default=0))
        for partition in positions:
            if not 0 <= partition < found.partitions:
                raise no_partition(found, partition)
        if request.member_id is not None:
            membership = await self._members.membership(group, request.member_id)
            check_held(membership, request.topic, positions, request.generation)
        group_topic = await self._group_topic_for(group, found, positions)

        async def one(partition: int, offset: int) -> Reply:
            operation = CommitPosition(offset=offset, generation=request.generation, epoch=request.epoch)
            return await self._journals.run(group, group_topic, found, partition, operation)

        await gathered(one(partition, offset) for partition, offset in positions.items())

    # Parts of the above ---------------------------------------------------------------------------------------------

    async def _readers(self, scope: Scope, topic: str) -> builtins.list[Group]:
        found = await self._topics.refresh(scope, topic)
        return [group for group, _ in await self._catalog.groups.group_topic_list_by_topic(found)]

    async def _group_topic_for(self, group: Group, topic: Topic, positions: Mapping[int, int]) -> GroupTopic:
        """Return the group topic. If it does not exist, create it at the offsets of this first commit."""
        found = await self._catalog.groups.group_topic_find(group.group_id, topic.incarnation)
        if found is not None:
            return found
        located = await located_at(self._extents, topic, Latest(), range(topic.partitions))
        for partition, offset in positions.items():
            located[partition] = (await located_at(self._extents, topic, AtOffset(offset), [partition]))[0]
        return await self._directory.create_group_topic(group, topic, begun_at(group, topic, located))

    async def _switch(self, scope: Scope, topic: str, *, paused: bool) -> None:
        """Store whether groups that start to read the topic are paused in it.

        Call it before listing the groups that read the topic: a group that starts now is in the list, or finds the
        topic paused.
        """
        await self._topics.alter(scope, topic, change=lambda settings: dataclasses.replace(settings, paused=paused))
