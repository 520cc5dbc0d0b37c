"""Runs one replay in its event loop: reads partitions ahead, runs the handler, and stores the position every second.

Several partitions are read at a time. Live groups are not involved: the replay reads by position, and its own position
is that of a cursor group with its name.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

from lakelog.client import processes
from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.group import AsyncGroup
from lakelog.client._async.lake import AsyncLake
from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client._async.reading import fetch_page
from lakelog.client._async.replay_range import AsyncReplayPosition
from lakelog.client.functions import is_coroutine_function
from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.decoding import result_of
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.replaying.lane_runner import LaneRunner
from lakelog.client.replaying.options import ReplayOptions
from lakelog.client.replaying.pacer import Pacer
from lakelog.client.replaying.partition import Lane, PartitionReplay
from lakelog.client.replaying.request import ReplayRange, ReplayRequest
from lakelog.client.retrying import CallRetryPolicy, is_passing
from lakelog.client.values import ReplayProgress
from lakelog.client.worker.handlers import begin
from lakelog.client.worker.pool import WorkerPool, WorkerSettings
from lakelog.client.worker.threads import HandlerThreads
from lakelog.errors import Conflict, LakelogError
from lakelog.model.fetch import FetchedBatches
from lakelog.model.position import AtOffset

log = processes.log

_PAGE = 5_000
_SLICE = 500
"""Messages that are handled before the next ones of the partition start."""
_PARTITIONS_AT_ONCE = 16
_COMMIT_SECONDS = 1.0
_HEARTBEAT_SECONDS = 10.0
_WAIT_SECONDS = 1.0


async def run_replay(
    request: ReplayRequest, options: ReplayOptions, codec: Codec[Any], settings: WorkerSettings, policy: CallRetryPolicy
) -> ReplayProgress:
    """Replay a range in the running event loop, and return the result."""
    return await Replay(request, options, codec, settings, policy).run()


class Replay:
    """One call of `topic.replay`."""

    def __init__(
        self,
        request: ReplayRequest,
        options: ReplayOptions,
        codec: Codec[Any],
        settings: WorkerSettings,
        policy: CallRetryPolicy,
    ) -> None:
        self._request = request
        self._options = options
        self._codec = codec
        self._owns_transport = settings.owns_transport
        self._calls = AsyncCalls(settings.transport(), policy)
        self._state = AsyncTopicState(request.topic, self._calls, WorkerPool(settings, policy))
        self._position = AsyncReplayPosition(AsyncGroup(request.group, self._calls), AsyncLake(self._calls), request)
        self._partitions: list[PartitionReplay] = []
        self._waiting: deque[PartitionReplay] = deque()
        self._incarnation = 0
        self._pacer = Pacer(options.rate)
        self._slots = asyncio.Semaphore(options.concurrency)
        self._threads = HandlerThreads()
        self._runner: LaneRunner | None = None
        self._error: Exception | None = None
        self._stopped = False

    async def run(self) -> ReplayProgress:
        """Replay the range. Return the result, or raise the error that stopped the replay, with the position stored."""
        try:
            if self._options.dry_run:
                self._take(await self._position.look())
                return self._progress()
            self._runner = LaneRunner(self._options, lambda: self._stopped)
            self._take(await self._position.take())
            return await self._replay()
        finally:
            await self._close()

    async def _replay(self) -> ReplayProgress:
        count = min(_PARTITIONS_AT_ONCE, max(2, self._options.concurrency), len(self._waiting))
        workers = [asyncio.create_task(self._work(), name=f"lakelog-replay-{each}") for each in range(count)]
        keeper = asyncio.create_task(self._keep(), name="lakelog-replay-position")
        try:
            await asyncio.gather(*workers)
        finally:
            self._stopped = True
            for task in (*workers, keeper):
                task.cancel()
            await asyncio.wait((*workers, keeper))
            await self._store_last()
        await self._report()
        if self._error is not None:
            raise self._error
        return self._progress()

    async def _close(self) -> None:
        self._threads.close()
        if self._runner is not None:
            self._runner.close()
        await self._position.release()
        if self._owns_transport:
            await self._calls.close(0.0)

    def _take(self, found: ReplayRange) -> None:
        self._incarnation = found.incarnation
        self._partitions = [PartitionReplay(each) for each in found.partitions]
        self._waiting = deque(each for each in self._partitions if each.next < each.end)

    # Handling ---------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            while self._waiting and not self._stopped:
                await self._replay_partition(self._waiting.popleft())
        except Exception as error:
            self._fail(error)

    async def _replay_partition(self, partition: PartitionReplay) -> None:
        async for messages in self._pages(partition):
            at = 0
            while at < len(messages) and not self._stopped:
                some = messages[at : at + self._slice_size]
                await self._pacer.pass_(len(some))
                lanes = partition.start(some, 1 if self._options.batch is not None else self._options.concurrency)
                await asyncio.gather(*map(self._run_lane, lanes))
                at += len(some)
            if self._stopped:
                return

    async def _run_lane(self, lane: Lane) -> None:
        async with self._slots:
            if self._runner is None or self._stopped:
                return
            try:
                await self._runner.run(lane)
            except Exception as error:
                # The other lanes finish the messages that they handle now.
                self._fail(error)

    @property
    def _slice_size(self) -> int:
        if self._options.batch is not None:
            return self._options.batch
        return min(_SLICE, self._pacer.most or _SLICE)

    def _fail(self, error: Exception) -> None:
        self._stopped = True
        if self._error is None:
            self._error = error

    # Reading ----------------------------------------------------------------------------------------------------------

    async def _pages(self, partition: PartitionReplay) -> AsyncIterator[Sequence[ReceivedMessage[Any]]]:
        """Yield the messages of a partition. The next page is fetched while one is handled."""
        at = partition.next
        ahead = asyncio.create_task(self._fetch(partition, at))
        try:
            while True:
                page = await ahead
                at = page.until
                if at < partition.end:
                    ahead = asyncio.create_task(self._fetch(partition, at))
                partition.skip_to(page.start)
                messages = result_of(page, self._request.topic, self._codec).messages
                if messages:
                    yield messages
                if at >= partition.end:
                    return
        finally:
            ahead.cancel()

    async def _fetch(self, partition: PartitionReplay, offset: int) -> FetchedBatches:
        limit = min(_PAGE, partition.end - offset)
        page = await fetch_page(self._state, partition.partition, AtOffset(offset), limit, _WAIT_SECONDS)
        if page.incarnation != self._incarnation:
            raise Conflict(
                f"Topic '{self._request.topic}' was deleted and created again during the replay.",
                topic=self._request.topic,
            )
        return page

    # Position and progress --------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Store the position and report progress every second, and send heartbeats."""
        alive_until = time.monotonic() + _HEARTBEAT_SECONDS
        try:
            while True:
                await asyncio.sleep(_COMMIT_SECONDS)
                try:
                    await self._store()
                    if time.monotonic() >= alive_until:
                        await self._position.keep()
                        alive_until = time.monotonic() + _HEARTBEAT_SECONDS
                except LakelogError as error:
                    if not is_passing(error):
                        raise
                    log.warning("Could not store the position of the replay; retrying: %s", error.detail)
                await self._report()
        except Exception as error:
            self._fail(error)

    async def _store(self) -> None:
        await self._position.commit({each.partition: each.position for each in self._partitions})

    async def _store_last(self) -> None:
        """Store the position at the end. A failure stops the replay like any other error."""
        try:
            await self._store()
        except LakelogError as error:
            self._fail(error)

    async def _report(self) -> None:
        hook = self._options.on_progress
        if hook is not None:
            await begin(hook, is_coroutine_function(hook), (self._progress(),), self._threads)

    def _progress(self) -> ReplayProgress:
        failed = 0 if self._runner is None else self._runner.failed
        return ReplayProgress(
            topic=self._request.topic,
            name=self._request.name,
            dry_run=self._options.dry_run,
            handled=sum(each.finished for each in self._partitions) - failed,
            failed=failed,
            retired=sum(each.retired for each in self._partitions),
            partitions=tuple(each.progress() for each in self._partitions),
        )
