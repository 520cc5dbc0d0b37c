"""Finds the position of a message by its id: that of a message in the log, in an outbox, or with a delay."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lakelog.engine.outbox.rows import scheduled_mark
from lakelog.model.message import is_scheduled_id, parse_message_id, parse_scheduled_id, partition_of_id
from lakelog.model.outbox import MessageQuery, MessageStatus, OutboxMessageId, parse_outbox_message_id
from lakelog.model.topic import Scope, Topic
from lakelog.storage.outbox import NO_OFFSET, REJECTED_PID
from lakelog.storage.scheduled import ScheduledKey, ScheduledState
from lakelog.storage.store import DEFAULT_CELL, Catalog, PartitionStore

_TOPICS_PER_CALL = 1000


class MessagePositions:
    """The positions of messages of all environments."""

    def __init__(self, catalog: Catalog, cells: Mapping[int, PartitionStore]) -> None:
        self._catalog = catalog
        self._cells = cells

    async def find(self, scope: Scope, query: MessageQuery) -> MessageStatus:
        """Return where the message is. A message of another environment is unknown."""
        text = query.message_id
        found = parse_outbox_message_id(text)
        if found is not None:
            return await self._find_relayed(scope, found)
        if is_scheduled_id(text):
            return await self._find_scheduled(scope, text)
        incarnation, partition, offset = parse_message_id(text)
        topic = await self._topic(scope, incarnation, partition)
        if topic is not None and await self._is_in_log(topic, partition, offset):
            return MessageStatus(id=text, state="published", partition=partition, offset=offset)
        return MessageStatus(id=text, state="unknown")

    async def _find_scheduled(self, scope: Scope, text: str) -> MessageStatus:
        incarnation, partition, mark = parse_scheduled_id(text)
        topic = await self._topic(scope, incarnation, partition)
        if topic is not None:
            key = ScheduledKey(pid=topic.pid(partition), mark=mark)
            found = await self._cells[topic.cells[partition]].scheduled.find(key)
            if found.offset is not None:
                return MessageStatus(id=text, state="published", partition=partition, offset=found.offset)
            if found.state is ScheduledState.WAITING:
                return MessageStatus(id=text, state="scheduled", partition=partition)
        return MessageStatus(id=text, state="unknown")

    async def _find_relayed(self, scope: Scope, asked: OutboxMessageId) -> MessageStatus:
        environment = await self._cells[DEFAULT_CELL].relays.environment(asked.outbox)
        if environment != scope.environment_id:
            return MessageStatus(id=str(asked), state="unknown")
        mark = (asked.number, asked.salt)
        records = await asyncio.gather(*(store.relays.relayed(asked.outbox, [mark]) for store in self._cells.values()))
        for each in records:
            if mark in each:
                pid, offset = each[mark]
                if pid == REJECTED_PID:
                    return MessageStatus(id=str(asked), state="rejected")
                if offset == NO_OFFSET:
                    return await self._find_delayed(asked, pid)
                return MessageStatus(id=str(asked), state="published", partition=partition_of_id(pid), offset=offset)
        return MessageStatus(id=str(asked), state="unknown")

    async def _find_delayed(self, asked: OutboxMessageId, pid: int) -> MessageStatus:
        """Find a message of an outbox that had a delay when it was recorded."""
        key = ScheduledKey(pid=pid, mark=scheduled_mark(asked))
        found = await asyncio.gather(*(store.scheduled.find(key) for store in self._cells.values()))
        offset = next((each.offset for each in found if each.offset is not None), None)
        if any(each.state not in (None, ScheduledState.WAITING) for each in found):
            return MessageStatus(id=str(asked), state="unknown")
        state = "scheduled" if offset is None else "published"
        return MessageStatus(id=str(asked), state=state, partition=partition_of_id(pid), offset=offset)  # type: ignore[arg-type]

    async def _topic(self, scope: Scope, incarnation: int, partition: int) -> Topic | None:
        after = ""
        while True:
            topics = await self._catalog.topic_list(scope, after=after, limit=_TOPICS_PER_CALL)
            for topic in topics:
                if topic.incarnation == incarnation and partition < topic.partitions:
                    return topic
            if len(topics) < _TOPICS_PER_CALL:
                return None
            after = topics[-1].name

    async def _is_in_log(self, topic: Topic, partition: int, offset: int) -> bool:
        heads = await self._cells[topic.cells[partition]].heads_read([topic.pid(partition)])
        return any(head.log_start <= offset < head.next_offset for head in heads)
