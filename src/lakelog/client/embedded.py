"""The transport into an engine of this process, in both colours.

The engine lives in one event loop. For asyncio over PostgreSQL that is the caller's; for sync clients it is a thread of
the client; hubs in memory share one thread, so that all clients of a name meet in the same hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from lakelog.client import processes
from lakelog.client.embedded_groups import AsyncEmbeddedGroups, EmbeddedGroups, GroupVerbs
from lakelog.client.embedded_lake import AsyncEmbeddedLake, EmbeddedLake, LakeVerbs
from lakelog.client.embedded_pipelines import AsyncEmbeddedPipelines, EmbeddedPipelines, PipelineVerbs
from lakelog.client.embedded_writes import AsyncEmbeddedWrites, EmbeddedWrites, WriteVerbs
from lakelog.client.hub import Hub, HubSettings
from lakelog.client.loops import LoopThread
from lakelog.client.shaping import changed, info_of_topic, partition_of_head
from lakelog.client.values import Chunk, FetchWish, Purged, Run, TopicChange, TopicInfo
from lakelog.engine import Described, FetchLimits, Frame, Numbered
from lakelog.errors import Closed, LakelogError, OutcomeUnknown, Unavailable
from lakelog.model.limits import MAX_FETCH_BYTES
from lakelog.model.message import Message
from lakelog.model.position import Position, Receipt
from lakelog.model.topic import Scope, TopicSettings
from lakelog.storage.store import Payload
from lakelog.wire.frames import NO_PRODUCER, FetchFrame, PublishFrame

R = TypeVar("R")
Number = tuple[bytes, int]


class Verbs:
    """The transport's verbs as coroutines in the engine's loop."""

    def __init__(self, settings: HubSettings, project: str, environment: str) -> None:
        self._settings = settings
        self._place = (project, environment)
        self._opening: asyncio.Task[Hub] | None = None

    async def open(self) -> Hub:
        """The hub; opened by whoever comes first, and again after a failure."""
        if self._opening is None or _failed(self._opening):
            self._opening = asyncio.create_task(Hub.open(self._settings))
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        if self._opening is not None and not _failed(self._opening):
            hub = await self._opening
            await hub.close()

    async def create_topic(self, name: str, partitions: int, settings: TopicSettings, if_missing: bool) -> TopicInfo:
        hub, scope = await self.enter()
        topic = await hub.engine.topics.create(scope, name, partitions, settings, if_missing=if_missing)
        return info_of_topic(topic)

    async def describe_topic(self, name: str) -> TopicInfo:
        hub, scope = await self.enter()
        return _info(await hub.engine.topics.describe(scope, name))

    async def list_topics(self, after: str) -> list[TopicInfo]:
        hub, scope = await self.enter()
        return [info_of_topic(topic) for topic in await hub.engine.topics.list(scope, after=after)]

    async def alter_topic(self, name: str, change: TopicChange) -> TopicInfo:
        hub, scope = await self.enter()
        topics = hub.engine.topics
        altered = await topics.alter(
            scope, name, partitions=change.partitions, change=lambda settings: changed(settings, change)
        )
        return info_of_topic(altered)

    async def delete_topic(self, name: str) -> None:
        hub, scope = await self.enter()
        await hub.engine.topics.delete(scope, name)

    async def purge_topic(self, name: str) -> Purged:
        hub, scope = await self.enter()
        purge = await hub.engine.topics.purge(scope, name)
        return Purged(removed=purge.removed, partitions=tuple(map(partition_of_head, purge.described.heads)))

    async def publish_messages(
        self, name: str, messages: Sequence[Message], number: Number | None, epoch: int | None
    ) -> list[Receipt | LakelogError]:
        hub, scope = await self.enter()
        numbered = Numbered(producer=number[0], sequence=number[1]) if number else None
        return await hub.engine.publisher.messages(scope, name, messages, numbered=numbered, epoch=epoch)

    async def publish_frames(self, name: str, frames: Sequence[PublishFrame]) -> list[Run | LakelogError]:
        hub, scope = await self.enter()
        answers = await hub.engine.publisher.frames(scope, name, [_frame(frame) for frame in frames])
        return [
            answer if isinstance(answer, LakelogError) else Run(answer.partition, answer.offset, answer.count)
            for answer in answers
        ]

    async def fetch(self, name: str, partition: int, position: Position, wish: FetchWish) -> Chunk:
        hub, scope = await self.enter()
        limits = FetchLimits(
            max_messages=wish.limit,
            max_bytes=wish.max_bytes or MAX_FETCH_BYTES,
            wait_seconds=wish.wait_seconds,
        )
        found = await hub.engine.fetcher.fetch(scope, name, partition, position, limits)
        return Chunk(
            incarnation=found.topic.incarnation,
            partition=partition,
            start=found.start,
            until=found.until,
            log_start=found.log_start,
            high_watermark=found.high_watermark,
            frames=[
                FetchFrame(
                    partition=partition,
                    epoch=batch.epoch,
                    count=batch.count,
                    base=batch.base,
                    appended_at=batch.appended_at,
                    payload=batch.payload,
                )
                for batch in found.batches
            ],
        )

    async def enter(self) -> tuple[Hub, Scope]:
        hub = await self.open()
        return hub, await hub.scope(*self._place)


class _Hubs:
    """The hubs in memory that have a name, and the thread of all hubs in memory."""

    def __init__(self) -> None:
        self.reset_after_fork()
        processes.after_fork(self)

    def reset_after_fork(self) -> None:
        self.thread = LoopThread("lakelog-memory")
        self._named: dict[str, asyncio.Task[Hub]] = {}

    async def open(self, settings: HubSettings) -> Hub:
        name = settings.url.partition("://")[2]
        if not name:
            return await Hub.open(settings)
        if name not in self._named or _failed(self._named[name]):
            self._named[name] = asyncio.create_task(Hub.open(settings))
        return await asyncio.shield(self._named[name])


_hubs = _Hubs()


class _Memory(Verbs):
    """The same over a hub in memory, which outlives its clients if it has a name."""

    async def open(self) -> Hub:
        if self._opening is None or _failed(self._opening):
            self._opening = asyncio.create_task(_hubs.open(self._settings))
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        if self._settings.url.partition("://")[2] == "":
            await super().close()


class _Portal:
    """What both colours share: which loop the engine is in, and that it does not survive a fork."""

    def __init__(self, settings: HubSettings, project: str, environment: str, *, own_thread: bool) -> None:
        in_memory = settings.url.startswith("memory:")
        self._verbs = (_Memory if in_memory else Verbs)(settings, project, environment)
        self._own = own_thread and not in_memory
        self._thread: LoopThread | None = None
        if in_memory:
            self._thread = _hubs.thread
        elif own_thread:
            self._thread = LoopThread("lakelog-engine")
        self._forked = False
        self._group_verbs = GroupVerbs(self._verbs.enter)
        self._pipeline_verbs = PipelineVerbs(self._verbs.enter)
        self._lake_verbs = LakeVerbs(self._verbs.enter)
        self._write_verbs = WriteVerbs(self._verbs.enter)
        processes.after_fork(self)

    def for_workers(self) -> AsyncEmbeddedTransport:
        """The same engine for an event loop; it is closed here."""
        twin = AsyncEmbeddedTransport.__new__(AsyncEmbeddedTransport)
        twin.__dict__.update(self.__dict__)
        return twin

    def blocking(self) -> EmbeddedTransport:
        """The same engine for threads; it is closed here."""
        twin = EmbeddedTransport.__new__(EmbeddedTransport)
        twin.__dict__.update(self.__dict__)
        return twin

    def reset_after_fork(self) -> None:
        self._forked = True
        processes.inherited.append((self._thread, self._verbs))

    def _check(self) -> None:
        if self._forked:
            raise Closed("This client was opened before a fork, and its engine stayed with the parent; connect again.")


class AsyncEmbeddedTransport(_Portal):
    """The `AsyncTransport` into an engine of this process."""

    def __init__(self, settings: HubSettings, project: str, environment: str) -> None:
        super().__init__(settings, project, environment, own_thread=False)

    @property
    def groups(self) -> AsyncEmbeddedGroups:
        return AsyncEmbeddedGroups(self._group_verbs, self._run)

    @property
    def pipelines(self) -> AsyncEmbeddedPipelines:
        return AsyncEmbeddedPipelines(self._pipeline_verbs, self._run)

    @property
    def lake(self) -> AsyncEmbeddedLake:
        return AsyncEmbeddedLake(self._lake_verbs, self._run)

    @property
    def writes(self) -> AsyncEmbeddedWrites:
        return AsyncEmbeddedWrites(self._write_verbs, self._run)

    async def open(self, seconds: float) -> None:
        await self._run(self._verbs.open, seconds, writes=False)

    async def create_topic(
        self, name: str, partitions: int, settings: TopicSettings, if_missing: bool, seconds: float
    ) -> TopicInfo:
        return await self._run(self._verbs.create_topic, seconds, name, partitions, settings, if_missing)

    async def describe_topic(self, name: str, seconds: float) -> TopicInfo:
        return await self._run(self._verbs.describe_topic, seconds, name, writes=False)

    async def list_topics(self, after: str, seconds: float) -> list[TopicInfo]:
        return await self._run(self._verbs.list_topics, seconds, after, writes=False)

    async def alter_topic(self, name: str, change: TopicChange, seconds: float) -> TopicInfo:
        return await self._run(self._verbs.alter_topic, seconds, name, change)

    async def delete_topic(self, name: str, seconds: float) -> None:
        return await self._run(self._verbs.delete_topic, seconds, name)

    async def purge_topic(self, name: str, seconds: float) -> Purged:
        return await self._run(self._verbs.purge_topic, seconds, name)

    async def publish_messages(
        self, name: str, messages: Sequence[Message], number: Number | None, epoch: int | None, seconds: float
    ) -> list[Receipt | LakelogError]:
        return await self._run(self._verbs.publish_messages, seconds, name, messages, number, epoch)

    async def publish_frames(
        self, name: str, frames: Sequence[PublishFrame], seconds: float
    ) -> list[Run | LakelogError]:
        return await self._run(self._verbs.publish_frames, seconds, name, frames)

    async def fetch(self, name: str, partition: int, position: Position, wish: FetchWish, seconds: float) -> Chunk:
        return await self._run(self._verbs.fetch, seconds, name, partition, position, wish, writes=False)

    async def close(self) -> None:
        if not self._forked:
            await self._within(self._verbs.close())

    async def _run(
        self, verb: Callable[..., Coroutine[Any, Any, R]], seconds: float, *args: Any, writes: bool = True
    ) -> R:
        self._check()
        try:
            async with asyncio.timeout(seconds):
                return await self._within(verb(*args))
        except TimeoutError as exc:
            raise _late(seconds, writes) from exc

    async def _within(self, work: Coroutine[Any, Any, R]) -> R:
        return await (work if self._thread is None else asyncio.wrap_future(self._thread.submit(work)))


class EmbeddedTransport(_Portal):
    """The `Transport` into an engine of this process."""

    def __init__(self, settings: HubSettings, project: str, environment: str) -> None:
        super().__init__(settings, project, environment, own_thread=True)

    @property
    def groups(self) -> EmbeddedGroups:
        return EmbeddedGroups(self._group_verbs, self._run)

    @property
    def pipelines(self) -> EmbeddedPipelines:
        return EmbeddedPipelines(self._pipeline_verbs, self._run)

    @property
    def lake(self) -> EmbeddedLake:
        return EmbeddedLake(self._lake_verbs, self._run)

    @property
    def writes(self) -> EmbeddedWrites:
        return EmbeddedWrites(self._write_verbs, self._run)

    def open(self, seconds: float) -> None:
        self._run(self._verbs.open, seconds, writes=False)

    def create_topic(
        self, name: str, partitions: int, settings: TopicSettings, if_missing: bool, seconds: float
    ) -> TopicInfo:
        return self._run(self._verbs.create_topic, seconds, name, partitions, settings, if_missing)

    def describe_topic(self, name: str, seconds: float) -> TopicInfo:
        return self._run(self._verbs.describe_topic, seconds, name, writes=False)

    def list_topics(self, after: str, seconds: float) -> list[TopicInfo]:
        return self._run(self._verbs.list_topics, seconds, after, writes=False)

    def alter_topic(self, name: str, change: TopicChange, seconds: float) -> TopicInfo:
        return self._run(self._verbs.alter_topic, seconds, name, change)

    def delete_topic(self, name: str, seconds: float) -> None:
        return self._run(self._verbs.delete_topic, seconds, name)

    def purge_topic(self, name: str, seconds: float) -> Purged:
        return self._run(self._verbs.purge_topic, seconds, name)

    def publish_messages(
        self, name: str, messages: Sequence[Message], number: Number | None, epoch: int | None, seconds: float
    ) -> list[Receipt | LakelogError]:
        return self._run(self._verbs.publish_messages, seconds, name, messages, number, epoch)

    def publish_frames(self, name: str, frames: Sequence[PublishFrame], seconds: float) -> list[Run | LakelogError]:
        return self._run(self._verbs.publish_frames, seconds, name, frames)

    def fetch(self, name: str, partition: int, position: Position, wish: FetchWish, seconds: float) -> Chunk:
        return self._run(self._verbs.fetch, seconds, name, partition, position, wish, writes=False)

    def close(self) -> None:
        if not self._forked and self._thread is not None:
            self._thread.submit(self._verbs.close()).result(30)
            if self._own:
                self._thread.stop()

    def _run(self, verb: Callable[..., Coroutine[Any, Any, R]], seconds: float, *args: Any, writes: bool = True) -> R:
        self._check()
        assert self._thread is not None
        future = self._thread.submit(verb(*args))
        try:
            return future.result(seconds)
        except TimeoutError as exc:
            if future.done():
                raise
            raise _late(seconds, writes) from exc
        finally:
            # Also when a signal interrupts the caller: nobody waits for it any more.
            future.cancel()


def _late(seconds: float, writes: bool) -> LakelogError:
    detail = f"PostgreSQL did not answer within {seconds:.1f} s."
    return (OutcomeUnknown if writes else Unavailable)(detail, unreachable="database")


def _failed(opening: asyncio.Task[Hub]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


def _info(described: Described) -> TopicInfo:
    return info_of_topic(described.topic, described.heads, described.now)


def _frame(frame: PublishFrame) -> Frame:
    numbered = None
    if frame.producer != NO_PRODUCER:
        numbered = Numbered(producer=frame.producer, sequence=frame.sequence)
    payload = Payload(data=bytes(frame.payload), count=frame.count)
    return Frame(partition=frame.partition, payload=payload, numbered=numbered, epoch=frame.epoch)
