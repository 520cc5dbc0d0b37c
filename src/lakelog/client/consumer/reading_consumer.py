"""The consumer of positions in its event loop: as a member of a cursor group, or without a group.

Messages are read ahead and handed out in the order of each partition. In a group, the position up to which the program
is done is committed as the commit mode says. Without a group, nothing is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from lakelog.client import processes
from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client.consumer.core import Place
from lakelog.client.consumer.cursor_member import CursorMember
from lakelog.client.consumer.options import ConsumerOptions
from lakelog.client.consumer.partition_readers import PartitionReaders, by_place
from lakelog.client.consumer.read_message import NoAnswers, ReadMessage, refusal
from lakelog.client.consumer.read_progress import ReadProgress
from lakelog.client.consumer.waiting import Waiters
from lakelog.client.message_answers import HeldList
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.reading.positions import position_of
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.worker.pool import WorkerPool, WorkerSettings
from lakelog.errors import Closed, InvalidRequest, LakelogError
from lakelog.model.lease import Verb
from lakelog.model.position import AtOffset, AtTime, Earliest, Position

log = processes.log

_GROWTH_SECONDS = 10.0
"""How often a consumer without a group looks for new partitions."""


class ReadingConsumer(NoAnswers):
    """Reads partitions by position, in one event loop."""

    def __init__(
        self, options: ConsumerOptions, group: str | None, settings: WorkerSettings, policy: CallRetryPolicy
    ) -> None:
        super().__init__(
            "Use `consumer.commit(message)`." if group is not None else "It has no group, and commits nothing."
        )
        self._options = options
        self._mode = options.commit_mode if group is not None else "manual"
        self._settings = settings
        self._calls = AsyncCalls(settings.transport(), policy)
        pool = WorkerPool(settings, policy)
        self._states = {each.name: AsyncTopicState(each.name, self._calls, pool) for each in options.topics}
        self._waiters = Waiters()
        codecs = {each.name: each.codec for each in options.topics}
        self._readers = PartitionReaders(self._states, codecs, options.prefetch, self._waiters.wake, group)
        self._member = None if group is None else CursorMember(options, group, self._calls, self._moved)
        self._progress: dict[Place, ReadProgress] = {} if self._member is None else self._member.progress
        self._taken: dict[object, dict[Place, list[int]]] = {}
        """The offsets that each caller took last."""
        self._partitions: dict[str, int] = {}
        """The number of partitions of each topic, for a consumer without a group."""
        self._tasks: list[asyncio.Task[None]] = []
        self._committing = asyncio.Lock()
        self._stopped = False
        self._group = group or ""

    async def start(self) -> None:
        """Join the group, or find the position from which to read. Raise an error if the server refuses."""
        try:
            if self._member is None:
                await self._start_reading()
                work = [self._watch_growth()]
            else:
                await self._member.start()
                work = [self._member.keep_alive(), self._commit_at_intervals()]
        except BaseException:
            await self.stop(5.0)
            raise
        self._tasks = [asyncio.create_task(each, name="lakelog-consumer") for each in work]

    async def stop(self, seconds: float) -> None:
        """Commit what the program is done with, unless it commits itself, and leave the group."""
        self._stopped = True
        self._reach()
        self._readers.stop_all()
        self._waiters.wake()
        for task in self._tasks:
            task.cancel()
        if self._member is not None:
            with contextlib.suppress(LakelogError, TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._commit_done()
            await self._member.leave()
        if self._settings.owns_transport:
            await self._calls.close(0.0)

    # Taking -----------------------------------------------------------------------------------------------------------

    async def pull(self, count: int, least: int, seconds: float | None, caller: object) -> HeldList[ReadMessage]:
        """Return messages: `count`, or at least `least`, or those that arrive within `seconds`."""
        await self._ended(caller)
        try:
            is_ready = await self._until_ready(least, seconds)
        finally:
            self._readers.need(0)
        if not is_ready:
            return HeldList()
        found = self._readers.take(count)
        self._give(caller, by_place(found))
        loop = asyncio.get_running_loop()
        return HeldList([ReadMessage(message, loop, self.hint, self._group) for message in found])

    async def pull_columns(self, count: int, seconds: float | None, caller: object) -> ReadColumns | None:
        """Return a page of one partition; None if there was none within `seconds`."""
        await self._ended(caller)
        while await self._until_ready(1, seconds, at_deadline=False):
            found = self._readers.take_table()
            if found is not None:
                place, table = found
                self._give(caller, {place: table.column("offset").to_pylist()})
                return ReadColumns(place[0], table, self.hint)
        return None

    async def _until_ready(self, least: int, seconds: float | None, *, at_deadline: bool = True) -> bool:
        """Wait for messages. Return False if there are too few after the time; with `at_deadline`, if there is none."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._readers.ready < least:
            if self._stopped:
                raise Closed("This consumer is closed.")
            if self._readers.error is not None:
                raise self._readers.error
            if deadline is not None and time.monotonic() >= deadline:
                return at_deadline and self._readers.ready > 0
            self._readers.need(least)
            await self._waiters.wait(deadline)
        return True

    def _give(self, caller: object, offsets: dict[Place, list[int]]) -> None:
        for place, some in offsets.items():
            if place in self._progress:
                self._progress[place].give(some)
        self._taken[caller] = offsets

    async def _ended(self, caller: object) -> None:
        """Record that a caller is done with its last messages. With `immediate`, commit them."""
        # A task that has ended asks for nothing more: `create_task(consumer.next())` is such a task.
        ended = [each for each in self._taken if each == caller or (isinstance(each, asyncio.Task) and each.done())]
        for each in ended:
            taken = self._taken.pop(each)
            if self._mode in ("immediate", "interval"):
                for place, offsets in taken.items():
                    if place in self._progress:
                        self._progress[place].finish(offsets)
        if self._mode == "immediate":
            # Also without `ended`: the commit of an earlier call may have failed.
            await self._commit_done()

    # Commits ----------------------------------------------------------------------------------------------------------

    async def commit(self, message: ReceivedMessage[Any] | None) -> None:
        """Commit a message and all before it in its partition; without a message, all that were handed out."""
        if self._member is None:
            raise InvalidRequest("A consumer without a group commits nothing. Give it a `group`.")
        if message is None:
            for progress in self._progress.values():
                progress.finish_through(progress.given)
        else:
            place = (message.topic, message.partition)
            if place in self._progress:
                self._progress[place].finish_through(message.offset)
                async with self._committing:
                    await self._member.commit({place: message.offset + 1})
                return
        await self._commit_done()

    async def _commit_done(self) -> None:
        if self._member is not None:
            self._reach()
            async with self._committing:
                await self._member.commit({place: each.done for place, each in self._progress.items()})

    def _reach(self) -> None:
        """Pass the messages that the group does not get, so that they do not count as lag."""
        for place, offset in self._readers.reached.items():
            if place in self._progress:
                self._progress[place].reach(offset)

    async def _commit_at_intervals(self) -> None:
        seconds = self._options.commit_seconds
        if self._mode not in ("interval", "rolling") or not seconds:
            return
        while True:
            await asyncio.sleep(seconds if self._mode == "interval" else min(1.0, seconds / 4))
            if self._mode == "rolling":
                for progress in self._progress.values():
                    progress.finish_older(time.monotonic() - seconds)
            try:
                await self._commit_done()
            except LakelogError as error:
                log.warning("Could not commit; retrying: %s", error.detail)

    # Partitions -------------------------------------------------------------------------------------------------------

    async def _moved(self, moved: Mapping[Place, ReadProgress | None]) -> None:
        """Follow the group: commit what is done of partitions that leave, and read others from their positions."""
        self._reach()
        leaving = [place for place, progress in moved.items() if progress is None]
        for place in leaving:
            self._readers.stop(place)
        if leaving and self._member is not None and self._mode != "manual":
            with contextlib.suppress(LakelogError):
                await self._member.commit_leaving({place: self._progress[place].done for place in leaving})
        for place, progress in moved.items():
            if progress is not None:
                self._readers.start(place, AtOffset(progress.given))

    async def seek(self, to: datetime, places: Collection[Place]) -> None:
        """Continue with messages of that time or later."""
        if self._member is not None:
            await self._member.seek(places, timestamp=to)
            self._taken.clear()
        else:
            self._restart(places, AtTime(to))

    async def rewind(self, offset: int, places: Collection[Place]) -> None:
        """Continue at an offset of these partitions."""
        if self._member is not None:
            await self._member.seek(places, offset=offset)
            self._taken.clear()
        else:
            for topic, partition in places:
                info = (await self._states[topic].info(fresh=True)).partition_list[partition]
                inside = max(info.log_start, min(offset, info.high_watermark))
                self._readers.start((topic, partition), AtOffset(inside))
            self._read_only(places)

    def _restart(self, places: Collection[Place], position: Position) -> None:
        """Read these partitions from a position; all partitions if none is given."""
        every = [(topic, each) for topic, count in self._partitions.items() for each in range(count)]
        for place in places or every:
            self._readers.start(place, position)
        self._read_only(places or every)

    def _read_only(self, places: Collection[Place]) -> None:
        """Stop reading all other partitions. Assigned partitions are read alone, until the next seek or rewind."""
        for place in self._readers.places - set(places):
            self._readers.stop(place)
        self._taken.clear()

    async def _start_reading(self) -> None:
        start = self._options.start_from or "latest"
        for name, state in self._states.items():
            info = await state.info(fresh=True)
            self._partitions[name] = info.partitions
            for each in info.partition_list:
                # The offset, not "latest": messages that are published from now on are read.
                is_latest = start == "latest"
                position = AtOffset(each.high_watermark) if is_latest else _start(start)
                self._readers.start((name, each.partition), position)

    async def _watch_growth(self) -> None:
        while True:
            await asyncio.sleep(_GROWTH_SECONDS)
            with contextlib.suppress(LakelogError):
                for name, state in self._states.items():
                    count = (await state.info(fresh=True)).partitions
                    for partition in range(self._partitions[name], count):
                        self._readers.start((name, partition), Earliest())
                    self._partitions[name] = count


class ReadColumns:
    """A page of one partition as columns. It has no answers."""

    def __init__(self, topic: str, table: pa.Table, hint: str) -> None:
        self.topic = topic
        self._table = table
        self._hint = hint

    def table(self) -> pa.Table:
        """Return the messages as a table."""
        return self._table

    async def answer(self, verb: Verb, reason: str = "", delay_ms: int | None = None) -> None:
        """Raise an error that says how to commit instead."""
        raise refusal(self._hint)


def _start(start: Any) -> Position:
    if start == "none":
        raise InvalidRequest("A consumer without a group needs a start: 'latest', 'earliest', a time or an offset.")
    return position_of(time=start) if isinstance(start, datetime) else position_of(start)
