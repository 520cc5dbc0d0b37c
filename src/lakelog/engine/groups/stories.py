"""The stories of messages: what happened to a message in each group. The module changes nothing.

A story takes a few statements, whatever the number of groups. `story_lanes` decides what it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakelog.batches import decode, to_messages
from lakelog.coordinator.leasing.state import DeliveryState, begin
from lakelog.engine.groups.progress import apply_seek
from lakelog.engine.groups.story_lanes import Told, lane_of
from lakelog.engine.leasing.journal import replay_rows
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.topics import Topics
from lakelog.engine.outbox.positions import MessagePositions
from lakelog.errors import InvalidRequest, LakelogError, OffsetOutOfRange, SegmentDamaged, TopicNotFound
from lakelog.model.group import Group, GroupTopic
from lakelog.model.message import is_scheduled_id, message_id, parse_message_id, parse_scheduled_id
from lakelog.model.message_story import MessageStory, StoryQuery
from lakelog.model.outbox import MessageQuery, parse_outbox_message_id
from lakelog.model.times import to_ms
from lakelog.model.topic import Scope, Topic
from lakelog.storage.groups import JournalRequest, StoredDeadLetter
from lakelog.storage.incidents import StoredIncident
from lakelog.storage.scheduled import ScheduledKey, ScheduledState
from lakelog.storage.store import Catalog, PartitionStore

MAX_GROUPS = 100
"""The most groups that a story has lanes for."""
MAX_INCIDENTS = 200
"""The most incidents of one message in a story, the newest ones."""
_TOPICS_PER_CALL = 1000
_MAX_OFFSET = 1 << 62


@dataclass(frozen=True, slots=True)
class _Place:
    """A message of the log."""

    topic: Topic
    partition: int
    offset: int

    @property
    def pid(self) -> int:
        return self.topic.pid(self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The message in the log."""

    status: str
    appended_at: datetime | None = None
    lineage: str | None = None


class Stories:
    """Tells stories of messages; one per engine."""

    def __init__(self, catalog: Catalog, topics: Topics, extents: Extents, positions: MessagePositions) -> None:
        self._catalog = catalog
        self._topics = topics
        self._extents = extents
        self._cells = extents.cells
        self._positions = positions

    async def tell(self, scope: Scope, query: StoryQuery) -> MessageStory:
        """Return the story of a message. A message of another environment has no topic."""
        if parse_outbox_message_id(query.message_id) is not None:
            return await self._tell_from_outbox(scope, query)
        if is_scheduled_id(query.message_id):
            return await self._tell_scheduled(scope, query)
        incarnation, partition, offset = parse_message_id(query.message_id)
        place = _Place(await self._topic(scope, query, incarnation, partition), partition, min(offset, _MAX_OFFSET))
        read = await self._message(place)
        groups: Sequence[tuple[Group, GroupTopic]] = ()
        if read.status != "unknown":
            groups = (await self._catalog.groups.group_topic_list_by_topic(place.topic))[:MAX_GROUPS]
        return MessageStory(
            id=query.message_id,
            status=read.status,  # type: ignore[arg-type]  # one of the literals
            topic=place.topic.name,
            partition=place.partition,
            offset=place.offset,
            appended_at=read.appended_at,
            lineage=read.lineage,
            lanes=tuple(map(lane_of, await self._told(place, read, groups))) if groups else (),
        )

    async def _tell_from_outbox(self, scope: Scope, query: StoryQuery) -> MessageStory:
        """Tell the story of a message that was published in a transaction."""
        found = await self._positions.find(scope, MessageQuery(message_id=query.message_id))
        if found.state != "published" or found.partition is None or found.offset is None:
            return MessageStory(id=query.message_id, status=found.state)
        if query.topic is None:
            raise InvalidRequest(f"Give the topic of message {query.message_id}: its id does not tell it.")
        topic = await self._topics.find(scope, query.topic)
        direct = message_id(topic.incarnation, found.partition, found.offset)
        return await self.tell(scope, StoryQuery(message_id=direct, topic=query.topic))

    async def _tell_scheduled(self, scope: Scope, query: StoryQuery) -> MessageStory:
        """Tell the story of a delayed message, which gets another id when it is published."""
        incarnation, partition, mark = parse_scheduled_id(query.message_id)
        topic = await self._topic(scope, query, incarnation, partition)
        store = self._cells[topic.cells[partition]]
        found = await store.scheduled.find(ScheduledKey(pid=topic.pid(partition), mark=mark))
        if found.offset is not None:
            direct = message_id(incarnation, partition, found.offset)
            return await self.tell(scope, StoryQuery(message_id=direct, topic=topic.name))
        status = "scheduled" if found.state is ScheduledState.WAITING else "unknown"
        return MessageStory(id=query.message_id, status=status, topic=topic.name, partition=partition)  # type: ignore[arg-type]

    async def _topic(self, scope: Scope, query: StoryQuery, incarnation: int, partition: int) -> Topic:
        """Return the topic that is named, or the one with this incarnation. Raise `TopicNotFound` if it has not."""
        topic: Topic | None = None
        if query.topic is not None:
            topic = await self._topics.find(scope, query.topic)
        else:
            topic = await self._topic_with(scope, incarnation)
        if topic is None or topic.incarnation != incarnation or partition >= topic.partitions:
            where = (
                "No topic of this environment has" if query.topic is None else f"Topic '{query.topic}' does not have"
            )
            raise TopicNotFound(f"{where} message {query.message_id}. Its topic may have been deleted.")
        return topic

    async def _topic_with(self, scope: Scope, incarnation: int) -> Topic | None:
        after = ""
        while True:
            topics = await self._catalog.topic_list(scope, after=after, limit=_TOPICS_PER_CALL)
            found = next((topic for topic in topics if topic.incarnation == incarnation), None)
            if found is not None or len(topics) < _TOPICS_PER_CALL:
                return found
            after = topics[-1].name

    async def _message(self, place: _Place) -> _Read:
        store = self._cells[place.topic.cells[place.partition]]
        try:
            read = await self._extents.read(store, place.pid, place.offset, max_messages=1, max_bytes=1)
        except OffsetOutOfRange as error:
            log_start = error.subject.get("log_start")
            is_removed = isinstance(log_start, int) and place.offset < log_start
            return _Read(status="removed" if is_removed else "unknown")
        except SegmentDamaged:
            return _Read(status="published")
        if read is None or not read.batches:
            return _Read(status="unknown")
        batch = read.batches[0]
        (message,) = to_messages(decode(batch.payload).slice(place.offset - batch.base, 1))
        return _Read(status="published", appended_at=batch.appended_at, lineage=message.lineage)

    async def _told(self, place: _Place, read: _Read, groups: Sequence[tuple[Group, GroupTopic]]) -> list[Told]:
        store, pid = self._cells[place.topic.cells[place.partition]], place.pid
        incidents = store.groups.incidents
        # The story of a copy begins with the message that was published first.
        root = place.offset if read.lineage is None else _root(read.lineage)
        by_group: dict[int, list[StoredDeadLetter]] = {}
        for letter in await incidents.dead_chain([group.group_id for group, _ in groups], pid, [root]):
            by_group.setdefault(letter.group_id, []).append(letter)
        chains = {group.group_id: _chain(root, by_group.get(group.group_id, ())) for group, _ in groups}
        if place.offset != root:
            groups = [pair for pair in groups if place.offset in chains[pair[0].group_id]]
        offsets = sorted({offset for group, _ in groups for offset in chains[group.group_id]})
        noted = await incidents.incidents_read(pid, offsets, limit=MAX_INCIDENTS)
        states = await self._states(store, place, groups)
        copies = [offset for offset in offsets if offset != root]
        times = await store.append_times([(pid, offset) for offset in copies]) if copies else []
        appended = {offset: to_ms(time) for offset, time in zip(copies, times, strict=True) if time is not None}
        return [
            Told(
                group=group,
                topic=place.topic,
                partition=place.partition,
                offsets=chains[group.group_id],
                incidents=_of_group(noted, group.group_id),
                letters=by_group.get(group.group_id, ()),
                appended_ms=appended,
                state=states.get(group.group_id),
                removed=place.offset if read.status == "removed" else None,
            )
            for group, _ in groups
        ]

    async def _states(
        self, store: PartitionStore, place: _Place, groups: Sequence[tuple[Group, GroupTopic]]
    ) -> Mapping[int, DeliveryState]:
        """Return the present states of the groups in the partition by group id, without those that cannot be read."""
        asks = [JournalRequest(group_id=group.group_id, pid=place.pid) for group, _ in groups]
        found: dict[int, DeliveryState] = {}
        for (group, group_topic), rows in zip(groups, await store.groups.journals_read(asks), strict=True):
            try:
                state, _ = replay_rows(begin(group_topic.start(place.partition)), rows)
            except LakelogError:
                continue  # A newer version wrote it.
            apply_seek(state, group_topic, place.partition)
            found[group.group_id] = state
        return found


def _root(lineage: str) -> int:
    """Return the offset of the message that was published first. A redrive never changes the partition."""
    return parse_message_id(lineage.partition("#")[0])[2]


def _chain(root: int, letters: Sequence[StoredDeadLetter]) -> list[int]:
    """Return the offsets of a message and of its copies, in the order of their redrives."""
    copies = {letter.key.offset: letter.redriven_to for letter in letters if letter.redriven_to is not None}
    found = [root]
    while (copy := copies.get(found[-1])) is not None and copy not in found:
        found.append(copy)
    return found


def _of_group(noted: Sequence[StoredIncident], group_id: int) -> list[StoredIncident]:
    return [each for each in noted if each.group_id == group_id]
