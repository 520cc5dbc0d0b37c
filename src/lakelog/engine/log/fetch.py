"""Fetch: reads batches of one partition from a position on, and can wait for the first batch.

Batches are returned whole, as stored: the first may begin before `start`, and the last may end after `until`. Readers
ignore the messages outside this range.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace

from lakelog.engine.log.extents import Extents
from lakelog.engine.log.head_watch import HeadWatch
from lakelog.engine.log.topics import Topics, no_partition
from lakelog.engine.waiters import Waiters
from lakelog.errors import InvalidRequest, OffsetOutOfRange
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest, Position
from lakelog.model.topic import Scope, Topic
from lakelog.storage.store import HeadState, PartitionStore, ReadResult


class Fetcher:
    """Reads all partitions; one per engine."""

    def __init__(self, topics: Topics, extents: Extents, waiters: Waiters) -> None:
        self._topics = topics
        self._extents = extents
        self._cells = extents.cells
        self._waiters = waiters
        self._watch = HeadWatch(self._cells, waiters)

    def close(self) -> None:
        self._watch.close()

    async def fetch(
        self, scope: Scope, name: str, partition: int, position: Position, wanted: FetchLimits | None = None
    ) -> FetchedBatches:
        wanted = wanted or FetchLimits()
        topic = await self._topics.find(scope, name, partition=partition)
        if not 0 <= partition < topic.partitions:
            raise no_partition(topic, partition)
        pid = topic.pid(partition)
        deadline = time.monotonic() + wanted.wait_seconds
        start = await self._resolve(self._cells[topic.cells[partition]], pid, position)
        has_waited = False
        while True:
            with self._waiters.waiting(pid) as grown:
                read = await self._read(topic, partition, start, wanted)
                left = deadline - time.monotonic()
                if read is None:
                    rest = replace(wanted, wait_seconds=max(left, 0.0))
                    return await self.fetch(scope, name, partition, _anew(name, position, has_waited), rest)
                if read.batches or left <= 0:
                    return _fetched(topic, partition, start, read, wanted)
                has_waited = True
                with contextlib.suppress(TimeoutError), self._watch.watching(topic.cells[partition], read.head):
                    async with asyncio.timeout(left):
                        await grown.wait()

    async def _read(self, topic: Topic, partition: int, start: int, wanted: FetchLimits) -> ReadResult | None:
        """Return the head; None if the topic was recreated. A missing head of an existing topic is created.

        Raises:
            TopicNotFound: If the topic is deleted.
        """
        store, pid = self._cells[topic.cells[partition]], topic.pid(partition)
        while True:
            try:
                read = await self._extents.read(
                    store, pid, start, max_messages=wanted.max_messages, max_bytes=wanted.max_bytes
                )
            except OffsetOutOfRange:
                # The log start of a deleted topic is its end, so the offset may belong to the current topic.
                if await self._is_another(topic):
                    return None
                raise
            if read is not None and read.head.state is not HeadState.DELETED:
                return read
            if await self._is_another(topic):
                return None
            await self._topics.ensure_heads(topic)

    async def _is_another(self, topic: Topic) -> bool:
        return (await self._topics.refresh(topic.scope, topic.name)).incarnation != topic.incarnation

    async def _resolve(self, store: PartitionStore, pid: int, position: Position) -> int:
        if isinstance(position, AtOffset):
            return position.offset
        if isinstance(position, AtTime):
            return await self._extents.offset_at_time(store, pid, position.time)
        heads = await store.heads_read([pid])
        if not heads:
            return 0
        if isinstance(position, Earliest):
            return heads[0].log_start
        if isinstance(position, Latest):
            return max(heads[0].log_start, heads[0].next_offset - position.back)
        raise InvalidRequest(f"Unknown position {position!r}.")


def _anew(name: str, position: Position, has_waited: bool) -> Position:
    """Return the position to read in a recreated topic: the caller's position, unless it refers to the old topic."""
    if not has_waited:
        return position
    if isinstance(position, AtOffset) and position.offset:
        raise OffsetOutOfRange(
            f"Topic '{name}' was deleted and created again; its offsets begin at 0 again.",
            offset=position.offset,
            log_start=0,
        )
    return Earliest()


def _fetched(topic: Topic, partition: int, start: int, read: ReadResult, wanted: FetchLimits) -> FetchedBatches:
    end = read.batches[-1].end if read.batches else start
    return FetchedBatches(
        incarnation=topic.incarnation,
        partition=partition,
        start=start,
        until=min(end, start + wanted.max_messages),
        log_start=read.head.log_start,
        high_watermark=read.head.next_offset,
        batches=read.batches,
    )
