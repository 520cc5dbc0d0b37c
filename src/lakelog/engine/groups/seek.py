"""Seek: moves a group to other offsets of a topic.

A seek is decided once in the catalog, with the targets resolved to offsets, and then applied per partition. If a
process dies in between, the next process that loads a partition, or the next seek, applies the decision first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakelog.coordinator.leasing.operations import Reply, SeekPosition
from lakelog.engine.groups.group_directory import GroupDirectory, begun_at
from lakelog.engine.groups.positions import Located, gathered, located_at
from lakelog.engine.groups.progress import ProgressReader
from lakelog.engine.log.topics import no_partition
from lakelog.errors import Conflict, InvalidRequest, NoPosition
from lakelog.model.group import Group, GroupTopic, Start
from lakelog.model.message import parse_message_id
from lakelog.model.position import AtOffset
from lakelog.model.seek import Sought
from lakelog.model.topic import Topic
from lakelog.storage.audit import note_change
from lakelog.storage.groups import GroupCatalog

_TRIES = 5


def meant(topic: Topic, to: Start | str, partition: int | None) -> tuple[Start, list[int]]:
    """Return the position and the partitions of a seek; a message id selects only its own partition."""
    if isinstance(to, str):
        incarnation, of_message, offset = parse_message_id(to)
        if incarnation != topic.incarnation:
            raise InvalidRequest(
                f"Message {to} is not in topic '{topic.name}', whose ids begin with {topic.incarnation}-."
            )
        if partition is not None and partition != of_message:
            raise InvalidRequest(f"Message {to} is in partition {of_message}, not in {partition}.", topic=topic.name)
        to, partition = AtOffset(offset), of_message
    if partition is None:
        return to, list(range(topic.partitions))
    if not 0 <= partition < topic.partitions:
        raise no_partition(topic, partition)
    return to, [partition]


class Seeker:
    """One seek of a group in a topic."""

    def __init__(
        self, catalog: GroupCatalog, directory: GroupDirectory, progress: ProgressReader, group: Group, topic: Topic
    ) -> None:
        self._catalog = catalog
        self._directory = directory
        self._progress = progress
        self._extents = progress.extents
        self._journals = progress.journals
        self._group = group
        self._topic = topic

    async def look(self, to: Start, partitions: Sequence[int]) -> list[Sought]:
        """Return the moves that the seek would make."""
        group_topic = await self._group_topic()
        if group_topic is None:
            return _begun(await self._starts(to, partitions))
        return [each for each, _ in await self._moved(group_topic, to, partitions)]

    async def move(self, to: Start, partitions: Sequence[int]) -> list[Sought]:
        for _ in range(_TRIES):
            group_topic = await self._group_topic()
            if group_topic is None:
                begun = await self._begin(to, partitions)
                if begun is not None:
                    return begun
                continue
            await self._finish(group_topic)
            moved = await self._moved(group_topic, to, partitions)
            targets: list[int | None] = [None] * self._topic.partitions
            timelines = [*group_topic.timelines, *[0] * self._topic.partitions][: self._topic.partitions]
            for each, timeline in moved:
                targets[each.partition], timelines[each.partition] = each.after, timeline
            _note([each for each, _ in moved])
            try:
                decided = await self._catalog.group_topic_seek(
                    replace(group_topic, timelines=tuple(timelines)), targets
                )
            except Conflict:
                continue
            await self._apply(decided, partitions)
            return [each for each, _ in moved]
        raise Conflict(
            f"Group '{self._group.name}' was moved by another call at the same time. Check its position, "
            f"then repeat the call.",
            group=self._group.name,
        )

    async def _group_topic(self) -> GroupTopic | None:
        return await self._catalog.group_topic_find(self._group.group_id, self._topic.incarnation)

    async def _begin(self, to: Start, partitions: Sequence[int]) -> list[Sought] | None:
        """Set the first position of a group in a topic; return None if another caller has set one."""
        starts = await self._starts(to, partitions)
        wanted = begun_at(self._group, self._topic, starts)
        note_change(None, {str(number): start.offset for number, start in enumerate(starts)})
        if await self._directory.create_group_topic(self._group, self._topic, wanted) != wanted:
            return None
        return _begun(starts)

    async def _starts(self, to: Start, partitions: Sequence[int]) -> list[Located]:
        if len(partitions) < self._topic.partitions:
            raise NoPosition(
                f"Group '{self._group.name}' has no position in topic '{self._topic.name}' yet; "
                "give it one in all partitions first.",
                group=self._group.name,
                topic=self._topic.name,
            )
        return await located_at(self._extents, self._topic, to, partitions)

    async def _moved(self, group_topic: GroupTopic, to: Start, partitions: Sequence[int]) -> list[tuple[Sought, int]]:
        """Return the move of each partition, and the timeline of its cell."""
        located = await located_at(self._extents, self._topic, to, partitions)
        states, _ = await self._progress.states(self._group, self._topic, group_topic)
        return [
            (Sought(partition=each, before=states[each].committed, after=found.offset), found.timeline)
            for each, found in zip(partitions, located, strict=True)
        ]

    async def _finish(self, group_topic: GroupTopic) -> None:
        """Apply an earlier seek that did not reach every partition, because the next decision replaces it."""
        if group_topic.epoch == 0:
            return
        every = [n for n in range(self._topic.partitions) if group_topic.target(n) is not None]
        states = await self._journals.states(self._group, self._topic, group_topic, every)
        late = [n for n, state in zip(every, states, strict=True) if state.epoch < group_topic.epoch]
        await self._apply(group_topic, late)

    async def _apply(self, group_topic: GroupTopic, partitions: Sequence[int]) -> None:
        targets = ((partition, group_topic.target(partition)) for partition in partitions)
        await gathered(self._run(group_topic, each, target) for each, target in targets if target is not None)

    async def _run(self, group_topic: GroupTopic, partition: int, offset: int) -> Reply:
        operation = SeekPosition(epoch=group_topic.epoch, offset=offset)
        return await self._journals.run(self._group, group_topic, self._topic, partition, operation)


def _note(moved: Sequence[Sought]) -> None:
    """Add the offsets by partition to the audit record."""
    note_change(
        {str(each.partition): each.before for each in moved}, {str(each.partition): each.after for each in moved}
    )


def _begun(starts: Sequence[Located]) -> list[Sought]:
    """Return the moves of a group that has no position yet."""
    return [Sought(partition=number, before=start.offset, after=start.offset) for number, start in enumerate(starts)]
