"""The consumer of positions when calls fail, heartbeats overlap, or the group has removed it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import lakelog
from lakelog.client._async.embedded import AsyncEmbeddedTransport
from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.client.consumer.cursor_member import CursorMember
from lakelog.client.embedding.engine import EmbeddedSettings
from lakelog.client.embedding.portal import EngineHost
from lakelog.client.worker.lease_keeper import ThreadLeaseKeeper
from lakelog.client.worker.pool import WorkerSettings
from lakelog.errors import NotAllowed
from lakelog.model.group import GroupKind
from lakelog.model.membership import JoinRequest
from tests.unit.client.faulty import QUICK

SOON = 10.0
TOPIC, GROUP, OTHER = "work", "g", "other"
EARLY = "earliest"
Hook = Callable[[Any], Coroutine[Any, Any, None]]


class HookedTransport(AsyncEmbeddedTransport):
    """A transport to an engine in memory that runs a hook before each call of an operation."""

    def __init__(self) -> None:
        super().__init__(EngineHost(EmbeddedSettings(url="memory://"), "default", "default", own_thread=False))
        self.before: dict[Any, list[Hook]] = {}
        self.after: dict[Any, list[Hook]] = {}

    async def call(self, operation: Any, request: Any, seconds: float) -> Any:
        for hook in self.before.get(operation.name, [])[:]:
            await hook(request)
        found = await super().call(operation, request, seconds)
        for hook in self.after.get(operation.name, [])[:]:
            await hook(request)
        return found


@asynccontextmanager
async def reading(
    count: int, *, after_other: bool = False, **options: Any
) -> AsyncIterator[tuple[AsyncLakelog, lakelog.AsyncConsumer[Any], HookedTransport]]:
    """Yield a client, a consumer of a cursor group on a topic with numbered messages, and its transport.

    With `after_other`, another member has the partition.
    """
    transport = HookedTransport()
    settings = WorkerSettings(
        transport=lambda: transport, keeper=lambda _: ThreadLeaseKeeper(lambda *_: []), owns_transport=False
    )
    given = {"group": GROUP, "kind": "cursor", "start_from": "earliest", "heartbeat": 25.0, **options}
    async with AsyncLakelog(transport, QUICK, settings) as log:
        await log.topic(TOPIC).create(1)
        await log.topic(TOPIC).publish_many(list(range(count)))
        if after_other:
            await join_other(log)
        async with log.consumer(TOPIC, **given) as consumer:
            yield log, consumer, transport


async def committed(log: AsyncLakelog) -> int:
    return (await log.group(GROUP).positions(TOPIC))[0].offset


async def join_other(log: AsyncLakelog) -> int:
    """Let another member join the group. Return its generation."""
    kind = GroupKind.CURSOR
    request = JoinRequest(group=GROUP, topics=(TOPIC,), member_id=OTHER, session_ms=30_000, kind=kind, start_from=EARLY)
    return (await log.group(GROUP).join(request)).generation


def member_of(consumer: lakelog.AsyncConsumer[Any]) -> CursorMember:
    """Return the member of the group, to send its heartbeats."""
    member: CursorMember = consumer._core._member  # type: ignore[union-attr]
    return member


async def remove(log: AsyncLakelog, consumer: lakelog.AsyncConsumer[Any]) -> None:
    """Remove the member of the consumer, as a timeout does."""
    await log.group(GROUP).leave(member_of(consumer)._member_id)


async def values(consumer: lakelog.AsyncConsumer[Any], count: int) -> list[int]:
    return (await consumer.batch(count, timeout=SOON, least=count)).values


async def test_columns_continue_after_the_messages_that_were_taken_before() -> None:
    async with reading(10, prefetch=6, commit="manual") as (log, consumer, _):
        assert await values(consumer, 2) == [0, 1]
        # The next page is there already.
        await asyncio.sleep(0.1)
        tables = [batch.table.column("offset").to_pylist() async for batch in consumer.arrow(timeout=0.3)]
        assert tables == [[2, 3, 4, 5], [6, 7, 8, 9]]
        await consumer.commit()
        assert await committed(log) == 10


async def test_a_commit_that_failed_is_made_by_the_next_call() -> None:
    async with reading(3, commit="immediate") as (log, consumer, transport):
        assert await values(consumer, 1) == [0]

        async def refuse(_: Any) -> None:
            transport.before.clear()
            raise NotAllowed("not now")

        transport.before["commit"] = [refuse]
        with pytest.raises(NotAllowed):
            await consumer.next(timeout=SOON)
        assert await values(consumer, 1) == [1]
        assert await committed(log) == 1


async def test_a_member_that_was_removed_continues_where_the_group_is() -> None:
    async with reading(8, prefetch=2, commit_interval=0) as (log, consumer, _):
        assert await values(consumer, 2) == [0, 1]
        await remove(log, consumer)
        generation = await join_other(log)
        await log.group(GROUP).commit(TOPIC, {0: 5}, member_id=OTHER, generation=generation)
        await log.group(GROUP).leave(OTHER)
        await member_of(consumer)._member.heartbeat()
        assert await values(consumer, 2) == [5, 6]


async def test_a_member_that_was_removed_gives_up_partitions_of_others() -> None:
    async with reading(8, commit_interval=0) as (log, consumer, _):
        assert await values(consumer, 2) == [0, 1]
        # Done, and not committed yet.
        assert await values(consumer, 1) == [2]
        await remove(log, consumer)
        await join_other(log)
        async with asyncio.timeout(SOON):
            await member_of(consumer)._member.heartbeat()
        assert member_of(consumer).progress == {}
        assert await consumer.next(timeout=0.05) is None
        assert await committed(log) == 0


async def test_two_heartbeats_at_once_read_a_new_partition_once() -> None:
    async with reading(6, after_other=True, commit="manual") as (log, consumer, transport):
        assert await consumer.next(timeout=0.05) is None
        await log.group(GROUP).leave(OTHER)
        calls, has_read = 0, asyncio.Event()

        async def hold(_: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > 1:
                await has_read.wait()

        transport.before["positions"] = [hold]
        beats = [asyncio.create_task(member_of(consumer)._member.heartbeat()) for _ in range(2)]
        assert await values(consumer, 3) == [0, 1, 2]
        has_read.set()
        await asyncio.gather(*beats)
        assert await values(consumer, 3) == [3, 4, 5]
