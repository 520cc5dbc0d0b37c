"""Tells the story of a message: gathers what `lakelog.model.message_story` decides from. It only reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.group import AsyncGroup
from lakelog.client._async.topic import AsyncTopic
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.errors import DeadLetterNotFound, InvalidRequest, NotAllowed, OffsetOutOfRange, TopicNotFound
from lakelog.model.dead_letters import DeadLetter
from lakelog.model.message import is_scheduled_id, parse_message_id, parse_scheduled_id
from lakelog.model.message_story import MAX_REDRIVES_TOLD, MessageStory, StoryLane, lane_of
from lakelog.model.outbox import MessageQuery, parse_outbox_message_id
from lakelog.model.topic_info import TopicInfo
from lakelog.wire.operations.outbox import FIND_MESSAGE

_Topics = list[TopicInfo]
MAX_SCHEDULED_READ = 10_000
"""The most delayed messages among which one is looked for."""


class AsyncMessageStories:
    """Tells stories of messages with the calls of one client."""

    def __init__(
        self,
        calls: AsyncCalls,
        topics: Callable[[], Awaitable[_Topics]],
        topic_of: Callable[[str], AsyncTopic[Any]],
    ) -> None:
        self._calls = calls
        self._topics = topics
        self._topic_of = topic_of

    async def tell(self, message_id: str, topic: str | None) -> MessageStory:
        """Return the story of a message, which is looked for in all topics unless one is given."""
        if parse_outbox_message_id(message_id) is not None:
            return await self._tell_from_outbox(message_id, topic)
        if is_scheduled_id(message_id):
            return await self._tell_scheduled(message_id, topic)
        incarnation, partition, offset = parse_message_id(message_id)
        name = await self._name(incarnation, message_id, topic)
        status, message = await self._message(name, partition, offset)
        lanes: list[StoryLane] = []
        for group in (await self._topic_of(name).stats()).groups if status != "unknown" else ():
            lane = await self._lane(group.group, group.kind, name, message_id, message)
            lanes += [lane] if lane is not None else []
        return MessageStory(
            id=message_id,
            status=status,
            topic=name,
            partition=partition,
            offset=offset,
            appended_at=None if message is None else message.appended_at,
            lineage=None if message is None else message.lineage,
            lanes=tuple(lanes),
        )

    async def _tell_from_outbox(self, message_id: str, topic: str | None) -> MessageStory:
        """Tell the story of a message that was published in a transaction."""
        found = await self._calls.call(FIND_MESSAGE, MessageQuery(message_id=message_id))
        if found.state != "published":
            return MessageStory(id=message_id, status=found.state)
        if topic is None:
            raise InvalidRequest(f"Give the topic of message {message_id}: its id does not tell it.")
        incarnation = (await self._topic_of(topic).describe()).incarnation
        return await self.tell(f"{incarnation}-{found.partition}-{found.offset}", topic)

    async def _tell_scheduled(self, message_id: str, topic: str | None) -> MessageStory:
        """Tell whether a delayed message waits. It gets another id when it is published."""
        incarnation, partition, _ = parse_scheduled_id(message_id)
        name = await self._name(incarnation, message_id, topic)
        waiting = await self._topic_of(name).scheduled(MAX_SCHEDULED_READ)
        status = "scheduled" if any(each.id == message_id for each in waiting) else "unknown"
        return MessageStory(id=message_id, status=status, topic=name, partition=partition)

    async def _name(self, incarnation: int, message_id: str, topic: str | None) -> str:
        infos = await self._topics() if topic is None else [await self._topic_of(topic).describe()]
        name = next((info.name for info in infos if info.incarnation == incarnation), None)
        if name is None:
            where = "No topic of this environment has" if topic is None else f"Topic '{topic}' does not have"
            raise TopicNotFound(f"{where} message {message_id}. Its topic may have been deleted.")
        return name

    async def _message(self, topic: str, partition: int, offset: int) -> tuple[str, ReceivedMessage[Any] | None]:
        """Return the status of a message, and the message if this client may read it and retention has kept it."""
        info = await self._topic_of(topic).describe()
        ends = next((each for each in info.partition_list if each.partition == partition), None)
        if ends is None or offset >= ends.high_watermark:
            return "unknown", None
        if offset < ends.log_start:
            return "removed", None
        try:
            page = await self._topic_of(topic).fetch(partition, offset=offset, limit=1)
        except NotAllowed:
            return "published", None
        except OffsetOutOfRange:
            return "removed", None
        return "published", next((each for each in page.messages if each.offset == offset), None)

    async def _lane(
        self, group: str, kind: str, topic: str, message_id: str, message: ReceivedMessage[Any] | None
    ) -> StoryLane | None:
        """Return what happened in a group; None for a message that was redriven for another group."""
        found = AsyncGroup(group, self._calls)
        lineage = message.lineage if message is not None else None
        if lineage is not None:
            before = await self._letters(found, topic, lineage.partition("#")[0])
            if all(letter.redriven_to != message_id for letter in before):
                return None
        letters = await self._letters(found, topic, message_id)
        progress = {each.partition: each for each in await found.progress(topic)}
        return lane_of(group, kind, message_id, letters, progress)

    async def _letters(self, group: AsyncGroup, topic: str, message_id: str) -> list[DeadLetter]:
        """Return the dead letter of a message, followed by those of its redriven copies."""
        letters: list[DeadLetter] = []
        wanted: str | None = message_id
        while wanted and len(letters) < MAX_REDRIVES_TOLD:
            try:
                letters.append(await group.dead_letters(topic).find(wanted))
            except DeadLetterNotFound:
                break
            wanted = letters[-1].redriven_to
        return letters
