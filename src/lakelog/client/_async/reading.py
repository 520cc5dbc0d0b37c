"""Reads a topic: one partition from a position, or all partitions, to the end or as messages arrive.

Messages of one partition come in order; those of several partitions are merged as they arrive. The reader keeps its
positions; servers store nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from lakelog.client import processes
from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client._runtime import AsyncBackgroundTask, AsyncCondition, AsyncMutex
from lakelog.client.publishing.codec import Codec, MessageBuilder
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.reading.positions import Offset, Start, position_of, start_of
from lakelog.client.values import FetchResult
from lakelog.errors import OffsetOutOfRange
from lakelog.model.arguments import check_seconds, check_whole
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.limits import MAX_BATCH_MESSAGES, MAX_PARTITIONS, MAX_WAIT_MS
from lakelog.model.position import AtOffset, Earliest, Position

# Arrow takes longer to load than everything else together: only the methods that need it import it.
if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_PAGE = 5_000
_WORKERS = 16
_FOLLOW_SECONDS = 2.0
"""The longest wait of a follower's fetch, and so how long its thread may outlive the follower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSource(Generic[T]):
    """The parts of a topic that readers need."""

    state: AsyncTopicState
    codec: Codec[T]


async def fetch_batches(
    state: AsyncTopicState, partition: int, position: Position, limit: int, wait_seconds: float
) -> FetchedBatches:
    """Fetch once. Repeat the call to wait longer than servers do."""
    calls, longest = state.calls, MAX_WAIT_MS / 1000
    while True:
        limits = FetchLimits(max_messages=limit, wait_seconds=min(wait_seconds, longest))
        at = position

        async def once(seconds: float, at: Position = at, limits: FetchLimits = limits) -> FetchedBatches:
            return await calls.transport.fetch(state.name, partition, at, limits, seconds)

        fetched = await calls.run(once, safe=True, wait_seconds=limits.wait_seconds)
        wait_seconds -= limits.wait_seconds
        if fetched.batches or wait_seconds <= 0:
            return fetched
        position = AtOffset(fetched.until)


async def read_page(source: FetchSource[T], partition: int, position: Position, wait_seconds: float) -> FetchResult[T]:
    """Return a page from an offset, or from the log start if retention has passed the offset."""
    from lakelog.client.reading.decoding import result_of

    fetched = await fetch_page(source.state, partition, position, _PAGE, wait_seconds)
    return result_of(fetched, source.state.name, source.codec)


async def fetch_page(
    state: AsyncTopicState, partition: int, position: Position, limit: int, wait_seconds: float
) -> FetchedBatches:
    """Fetch from an offset, or from the log start if retention has passed the offset."""
    try:
        return await fetch_batches(state, partition, position, limit, wait_seconds)
    except OffsetOutOfRange as error:
        log_start = error.subject.get("log_start")
        if not isinstance(position, AtOffset) or not isinstance(log_start, int) or position.offset >= log_start:
            raise
        processes.log.warning(
            "topic %s partition %d: messages %d to %d were retired before they were read",
            state.name,
            partition,
            position.offset,
            log_start - 1,
        )
        return await fetch_batches(state, partition, Earliest(), limit, wait_seconds)


async def read_to_end(source: FetchSource[T], start: Start) -> AsyncIterator[ReceivedMessage[T]]:
    """Yield every message up to the present high watermarks."""
    info = await source.state.info(fresh=True)
    ends = {partition.partition: partition.high_watermark for partition in info.partition_list}
    waiting = deque((partition, start_of(start, partition)) for partition in ends)
    ahead = AsyncPrefetchedPage(source, *waiting.popleft()) if waiting else None
    try:
        while ahead is not None:
            page, partition = await ahead.page(), ahead.partition
            if page.next_offset < ends[partition]:
                waiting.append((partition, AtOffset(page.next_offset)))
            ahead = AsyncPrefetchedPage(source, *waiting.popleft()) if waiting else None
            for message in page.messages:
                if message.offset < ends[partition]:
                    yield message
    finally:
        if ahead is not None:
            ahead.stop()


class AsyncPrefetchedPage(Generic[T]):
    """A page that is fetched while the previous one is read."""

    def __init__(self, source: FetchSource[T], partition: int, position: Position) -> None:
        self.partition = partition
        self._source = source
        self._position = position
        self._page: FetchResult[T] | None = None
        self._error: BaseException | None = None
        self._task = AsyncBackgroundTask("lakelog-read", self._fetch)

    async def page(self) -> FetchResult[T]:
        await self._task.join()
        if self._error is not None:
            raise self._error
        assert self._page is not None
        return self._page

    def stop(self) -> None:
        self._task.cancel()

    async def _fetch(self) -> None:
        try:
            self._page = await read_page(self._source, self.partition, self._position, 0.0)
        except BaseException as exc:
            self._error = exc


async def read_on(source: FetchSource[T], start: Start) -> AsyncIterator[ReceivedMessage[T]]:
    """Yield every message, and then new messages as they arrive."""
    follower = AsyncFollower(source, start)
    try:
        await follower.begin()
        while True:
            page = await follower.next()
            for message in page.messages:
                yield message
    finally:
        follower.stop()


class AsyncFollower(Generic[T]):
    """Fetches all partitions concurrently, in a few tasks, and yields messages as they arrive."""

    def __init__(self, source: FetchSource[T], start: Start) -> None:
        self._source = source
        self._start = start
        self._mutex = AsyncMutex()
        self._changed = AsyncCondition(self._mutex)
        self._pages: deque[FetchResult[T]] = deque()
        self._positions: dict[int, Position] = {}
        self._tasks: list[AsyncBackgroundTask] = []
        self._error: BaseException | None = None
        self._stopped = False

    async def begin(self) -> None:
        info = await self._source.state.info(fresh=True)
        self._positions = {partition: start_of(self._start, partition) for partition in range(info.partitions)}
        workers = min(_WORKERS, info.partitions)
        self._tasks = [
            AsyncBackgroundTask(f"lakelog-follow-{worker}", lambda worker=worker: self._work(worker, workers))  # type: ignore[misc]
            for worker in range(workers)
        ]

    async def next(self) -> FetchResult[T]:
        info = await self._source.state.info()
        for partition in range(len(self._positions), info.partitions):
            self._positions[partition] = Earliest()
        with self._mutex:
            while not self._pages:
                if self._error is not None:
                    raise self._error
                await self._changed.wait(_FOLLOW_SECONDS)
            page = self._pages.popleft()
            self._changed.notify_all()
            return page

    def stop(self) -> None:
        with self._mutex:
            self._stopped = True
            self._changed.notify_all()
        for task in self._tasks:
            task.cancel()

    async def _work(self, worker: int, workers: int) -> None:
        try:
            while not self._stopped:
                mine = range(worker, len(self._positions), workers)
                wait = _FOLLOW_SECONDS if len(mine) == 1 else 0.25 / len(mine)
                for partition in mine:
                    await self._read(partition, wait)
        except Exception as exc:
            with self._mutex:
                self._error = exc
                self._changed.notify_all()

    async def _read(self, partition: int, wait: float) -> None:
        page = await read_page(self._source, partition, self._positions[partition], wait)
        self._positions[partition] = AtOffset(page.next_offset)
        if page.messages:
            with self._mutex:
                while len(self._pages) > len(self._tasks) and not self._stopped:
                    await self._changed.wait()
                self._pages.append(page)
                self._changed.notify_all()


class AsyncTopicReading(Generic[T]):
    """The reading methods of `AsyncTopic`."""

    _state: AsyncTopicState
    _builder: MessageBuilder[T]

    async def fetch(
        self,
        partition: int = 0,
        *,
        offset: Offset | None = None,
        time: datetime | None = None,
        last: int | None = None,
        limit: int = 1000,
        wait: timedelta | float = 0.0,
    ) -> FetchResult[T]:
        """Return messages of one partition, in order. To continue, fetch again at `next_offset` of the result.

        Without `offset`, `time` and `last`, reading begins at the oldest message. Give at most one of them. The result
        also has expired messages, and copies that were redriven for a group.

        Args:
            partition: The partition, from 0. Default: 0. A missing partition raises `PartitionNotFound`.
            offset: The offset of the first message, "earliest" or "latest". An offset below the oldest message or
                above the end raises `OffsetOutOfRange`.
            time: Begin at the first message that was appended at this time or later: a datetime with a time zone.
            last: Begin that many messages before the end, 0 or more; at the oldest message if the partition has fewer.
            limit: Messages to return at most, from 1 to 10,000. Default: 1000. A result is smaller where messages are
                large: it holds about 16 MiB.
            wait: How long to wait for a message if there is none yet, in seconds or as a timedelta. Default: 0, which
                returns immediately. After the time, the result is empty.
        """
        from lakelog.client.reading.decoding import result_of

        fetched = await self._fetch(partition, position_of(offset, time, last), limit, wait)
        return result_of(fetched, self._state.name, self._builder.codec)

    async def fetch_arrow(
        self,
        partition: int = 0,
        *,
        offset: Offset | None = None,
        time: datetime | None = None,
        last: int | None = None,
        limit: int = MAX_BATCH_MESSAGES,
        wait: timedelta | float = 0.0,
    ) -> pa.Table:
        """Return messages of one partition as an Arrow table. To continue, fetch again at the last `offset` + 1.

        Args:
            partition: The partition, from 0. Default: 0.
            offset: The offset of the first message, "earliest" or "latest". Default: the oldest message.
            time: Begin at the first message that was appended at this time or later.
            last: Begin that many messages before the end.
            limit: Messages to return at most, from 1 to 10,000. Default: 10,000.
            wait: How long to wait for a message if there is none yet, in seconds or as a timedelta. Default: 0.
        """
        from lakelog.client.reading.decoding import table_of

        return table_of(await self._fetch(partition, position_of(offset, time, last), limit, wait))

    def read(self, *, from_: Start = "earliest", follow: bool = False) -> AsyncIterator[ReceivedMessage[T]]:
        """Iterate over the messages of all partitions. Messages of one partition come in order.

        Expired messages and copies that were redriven for a group are included. A consumer with a group leaves them
        out.

        Args:
            from_: Where to begin in each partition: "earliest" (the default), "latest", a datetime with a time zone, a
                number of messages before the end, or a dict of partition to offset (others begin at the oldest
                message).
            follow: Wait for further messages at the end. Default: False, which stops at the messages that exist when
                reading begins.
        """
        source = FetchSource(state=self._state, codec=self._builder.codec)
        return read_on(source, from_) if follow else read_to_end(source, from_)

    def tail(self, *, from_: Start = "latest", follow: bool = True) -> AsyncIterator[ReceivedMessage[T]]:
        """Iterate over the messages that arrive from now on.

        Args:
            from_: Where to begin, as for `read`. Default: "latest". `from_=10` begins with the last ten messages of
                each partition.
            follow: Wait for further messages at the end. Default: True. With False, it is the same as `read`.
        """
        return self.read(from_=from_, follow=follow)

    async def _fetch(self, partition: int, position: Position, limit: int, wait: timedelta | float) -> FetchedBatches:
        check_whole("partition", partition, 0, MAX_PARTITIONS - 1)
        check_whole("limit", limit, 1, MAX_BATCH_MESSAGES)
        return await fetch_batches(self._state, partition, position, limit, check_seconds("wait", wait))
