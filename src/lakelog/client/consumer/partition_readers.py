"""Reads partitions ahead of a program: one task for each partition, a few of them at a time.

Each partition has at most one page in memory besides the page that is read, or as many as a caller waits for. Servers
store nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client._async.reading import fetch_page
from lakelog.client.consumer.core import Place
from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.decoding import result_of, table_of
from lakelog.client.reading.group_view import GroupView
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.retrying import Backoff, Outage, is_passing
from lakelog.errors import LakelogError
from lakelog.model.fetch import FetchedBatches
from lakelog.model.position import AtOffset, Position

_CONCURRENT = 16
_WAIT_SECONDS = 2.0
_TURN_SECONDS = 0.25
"""How often each partition is read if there are more than can be read at the same time."""
_PAGE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPage:
    """A page of one partition, and the offsets in it that the group does not get."""

    batches: FetchedBatches
    excluded: frozenset[int] = frozenset()

    @property
    def count(self) -> int:
        """The number of messages that the group gets."""
        return self.batches.until - self.batches.start - len(self.excluded)

    def messages(self, topic: str, codec: Codec[Any]) -> list[ReceivedMessage[Any]]:
        """Return the messages that the group gets."""
        found = result_of(self.batches, topic, codec).messages
        return [each for each in found if each.offset not in self.excluded] if self.excluded else [*found]

    def table(self) -> pa.Table:
        """Return the messages that the group gets as a table."""
        found = table_of(self.batches)
        if not self.excluded:
            return found
        excluded = pa.array(sorted(self.excluded), pa.int64())
        return found.filter(pc.invert(pc.is_in(found.column("offset"), excluded)))


class PartitionPages:
    """The messages of one partition that were read ahead. The task belongs to `PartitionReaders`."""

    def __init__(self, place: Place, codec: Codec[Any]) -> None:
        self.place = place
        self.task: asyncio.Task[None] | None = None
        self._codec = codec
        self._pages: deque[ReadPage] = deque()
        self._decoded: ReadPage | None = None
        """The page of `_messages`."""
        self._messages: deque[ReceivedMessage[Any]] = deque()
        self._end: int | None = None
        """The end of the last page."""
        self.changed = asyncio.Event()
        """Set when a page was taken, or a caller waits for more messages than there are."""

    @property
    def ready(self) -> int:
        """The number of messages that can be taken."""
        return len(self._messages) + sum(page.count for page in self._pages)

    @property
    def reached(self) -> int | None:
        """The offset up to which each message was taken or is not for the group; None if nothing was read."""
        if self._messages:
            return self._messages[0].offset
        return self._pages[0].batches.start if self._pages else self._end

    def put(self, page: ReadPage) -> None:
        """Add a page."""
        self._end = page.batches.until
        if page.count:
            self._pages.append(page)

    async def until_room(self, is_short: Callable[[], bool]) -> None:
        """Wait until there is no page, or a caller waits for more messages than there are."""
        while self._pages and not is_short():
            self.changed.clear()
            await self.changed.wait()

    def take(self, count: int) -> list[ReceivedMessage[Any]]:
        """Return at most that many messages."""
        found: list[ReceivedMessage[Any]] = []
        while len(found) < count and (self._messages or self._pages):
            if not self._messages:
                self._decoded = self._pop_page()
                self._messages.extend(self._decoded.messages(self.place[0], self._codec))
            while self._messages and len(found) < count:
                found.append(self._messages.popleft())
        return found

    def take_table(self) -> pa.Table | None:
        """Return the rest of the page that was begun, else the next page, as a table; None if there is none."""
        if self._messages:
            assert self._decoded is not None
            rest = replace(self._decoded.batches, start=self._messages[0].offset)
            self._messages.clear()
            return replace(self._decoded, batches=rest).table()
        return self._pop_page().table() if self._pages else None

    def _pop_page(self) -> ReadPage:
        page = self._pages.popleft()
        self.changed.set()
        return page


class PartitionReaders:
    """Reads the partitions that a consumer has now.

    Args:
        states: The topics, by name.
        codecs: How to decode their values.
        page: The largest number of messages of a page.
        arrived: Called when messages arrive or a partition cannot be read.
        group: The group that reads: messages that it does not get are left out. Without a group, nothing is left out.
    """

    def __init__(
        self,
        states: Mapping[str, AsyncTopicState],
        codecs: Mapping[str, Codec[Any]],
        page: int | None,
        arrived: Callable[[], None],
        group: str | None = None,
    ) -> None:
        self.error: LakelogError | None = None
        """The error for which a partition cannot be read."""
        self._states = states
        self._codecs = codecs
        self._page = _PAGE if page is None else max(1, page)
        self._arrived = arrived
        self._group = group
        self._needed = 0
        """The number of messages that a caller waits for."""
        self._pages: dict[Place, PartitionPages] = {}
        self._turn: deque[Place] = deque()
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._outage = Outage()

    @property
    def places(self) -> set[Place]:
        """The partitions that are read."""
        return set(self._pages)

    @property
    def ready(self) -> int:
        """The number of messages that can be taken."""
        return sum(pages.ready for pages in self._pages.values())

    @property
    def reached(self) -> dict[Place, int]:
        """The offset of each partition up to which each message was taken or is not for the group."""
        return {place: pages.reached for place, pages in self._pages.items() if pages.reached is not None}

    def need(self, count: int) -> None:
        """Read until there are that many messages, even if they are more than a page of each partition."""
        self._needed = count
        for pages in self._pages.values():
            pages.changed.set()

    def start(self, place: Place, position: Position) -> None:
        """Read a partition from a position on. Messages that were read of it before are dropped."""
        self.stop(place)
        pages = PartitionPages(place, self._codecs[place[0]])
        pages.task = asyncio.create_task(self._read(pages, position), name=f"lakelog-read-{place[0]}-{place[1]}")
        self._pages[place] = pages
        self._turn.append(place)

    def stop(self, place: Place) -> None:
        """Stop reading a partition."""
        pages = self._pages.pop(place, None)
        if pages is not None and pages.task is not None:
            pages.task.cancel()
            self._turn.remove(place)

    def stop_all(self) -> None:
        """Stop reading."""
        for place in list(self._pages):
            self.stop(place)

    def take(self, count: int) -> list[ReceivedMessage[Any]]:
        """Return at most that many messages. Partitions take turns."""
        found: list[ReceivedMessage[Any]] = []
        for _ in range(len(self._turn)):
            if len(found) >= count:
                break
            found += self._next_pages().take(count - len(found))
        return found

    def take_table(self) -> tuple[Place, pa.Table] | None:
        """Return the next page of a partition as a table."""
        for _ in range(len(self._turn)):
            pages = self._next_pages()
            table = pages.take_table()
            if table is not None and table.num_rows:
                return pages.place, table
        return None

    def _next_pages(self) -> PartitionPages:
        place = self._turn[0]
        self._turn.rotate(-1)
        return self._pages[place]

    async def _read(self, pages: PartitionPages, position: Position) -> None:
        topic, partition = pages.place
        backoff = Backoff()
        while True:
            await pages.until_room(self._is_short)
            try:
                async with self._slots:
                    page = await self._fetch(self._states[topic], partition, position)
            except LakelogError as error:
                if not is_passing(error):
                    self.error = error
                    self._arrived()
                    return
                self._outage.failed(error)
                await asyncio.sleep(backoff.next(error))
                continue
            backoff.reset()
            self._outage.ended()
            position = AtOffset(page.batches.until)
            if page.batches.batches:
                pages.put(page)
                self._arrived()

    async def _fetch(self, state: AsyncTopicState, partition: int, position: Position) -> ReadPage:
        page = await fetch_page(state, partition, position, self._page, self._wait_seconds())
        if self._group is None or not page.batches:
            return ReadPage(batches=page)
        view = GroupView(group=self._group, at=await state.time_after(timedelta(0)))
        return ReadPage(batches=page, excluded=view.excluded_offsets(page))

    def _is_short(self) -> bool:
        return self.ready < self._needed

    def _wait_seconds(self) -> float:
        """Return how long a fetch waits at the server: less, if more partitions share the slots."""
        count = len(self._pages)
        return _WAIT_SECONDS if count <= _CONCURRENT else _TURN_SECONDS * _CONCURRENT / count


def by_place(messages: Sequence[ReceivedMessage[Any]]) -> dict[Place, list[int]]:
    """Return the offsets of messages, by partition."""
    found: dict[Place, list[int]] = {}
    for message in messages:
        found.setdefault((message.topic, message.partition), []).append(message.offset)
    return found
