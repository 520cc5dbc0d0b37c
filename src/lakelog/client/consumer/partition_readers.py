"""Reads partitions ahead of a program: one task for each partition, a few of them at a time.

Each partition has at most one page in memory besides the page that is read. Servers store nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client._async.reading import fetch_page
from lakelog.client.consumer.core import Place
from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.decoding import result_of, table_of
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


class PartitionPages:
    """The messages of one partition that were read ahead. The task belongs to `PartitionReaders`."""

    def __init__(self, place: Place, codec: Codec[Any]) -> None:
        self.place = place
        self.task: asyncio.Task[None] | None = None
        self._codec = codec
        self._page: FetchedBatches | None = None
        self._decoded: FetchedBatches | None = None
        """The page of `_messages`."""
        self._messages: deque[ReceivedMessage[Any]] = deque()
        self.emptied = asyncio.Event()

    @property
    def ready(self) -> int:
        """The number of messages that can be taken."""
        page = self._page
        return len(self._messages) + (0 if page is None else page.until - page.start)

    def put(self, page: FetchedBatches) -> None:
        """Add a page, when there is none."""
        self._page = page
        self.emptied.clear()

    async def until_empty(self) -> None:
        """Wait until there is room for a page."""
        while self._page is not None:
            self.emptied.clear()
            await self.emptied.wait()

    def take(self, count: int) -> list[ReceivedMessage[Any]]:
        """Return at most that many messages."""
        found: list[ReceivedMessage[Any]] = []
        while len(found) < count and (self._messages or self._page is not None):
            if not self._messages:
                self._decoded = self._pop_page()
                self._messages.extend(result_of(self._decoded, self.place[0], self._codec).messages)
            while self._messages and len(found) < count:
                found.append(self._messages.popleft())
        return found

    def take_table(self) -> pa.Table | None:
        """Return the rest of the page that was begun, else the next page, as a table; None if there is none."""
        if self._messages:
            assert self._decoded is not None
            rest = replace(self._decoded, start=self._messages[0].offset)
            self._messages.clear()
            return table_of(rest)
        return None if self._page is None else table_of(self._pop_page())

    def _pop_page(self) -> FetchedBatches:
        page, self._page = self._page, None
        assert page is not None
        self.emptied.set()
        return page


class PartitionReaders:
    """Reads the partitions that a consumer has now.

    Args:
        states: The topics, by name.
        codecs: How to decode their values.
        page: The largest number of messages of a page.
        arrived: Called when messages arrive or a partition cannot be read.
    """

    def __init__(
        self,
        states: Mapping[str, AsyncTopicState],
        codecs: Mapping[str, Codec[Any]],
        page: int | None,
        arrived: Callable[[], None],
    ) -> None:
        self.error: LakelogError | None = None
        """The error for which a partition cannot be read."""
        self._states = states
        self._codecs = codecs
        self._page = _PAGE if page is None else max(1, page)
        self._arrived = arrived
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
            await pages.until_empty()
            try:
                async with self._slots:
                    page = await fetch_page(self._states[topic], partition, position, self._page, self._wait_seconds())
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
            position = AtOffset(page.until)
            if page.batches:
                pages.put(page)
                self._arrived()

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
