"""Retention by age, count and bytes, and hot tables that are dropped when all of their messages are removed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from lakelog.errors import OffsetOutOfRange
from lakelog.maintenance.retention_enforcer import RetentionEnforcer
from lakelog.maintenance.roller import Roller
from lakelog.maintenance.trimmer import Trimmer
from lakelog.model.position import AtOffset
from lakelog.model.topic import Retention
from tests.acceptance.engines import Log, Server
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import text


async def keep(server: Server, retention: Retention) -> None:
    await server.engine.topics.alter(server.scope, server.name, change=lambda s: replace(s, retention=retention))


async def enforced(server: Server) -> list[int]:
    await RetentionEnforcer(server.engine).work()
    return [head.log_start for head in await server.heads()]


async def _clock(server: Server) -> datetime:
    return min([await store.clock() for store in server.engine.cells.values()])


async def test_retention_by_count_keeps_exactly_that_number_per_partition(log: Log) -> None:
    async with log.server() as server:
        await server.create(4, Retention(max_count=5))
        for partition, count in enumerate((12, 6, 5, 0)):
            await server.publish(*(text(str(n), partition=partition) for n in range(count)))
        assert await enforced(server) == [7, 1, 0, 0]
        assert await enforced(server) == [7, 1, 0, 0]
        assert await server.values(0) == [str(n) for n in range(7, 12)]
        with pytest.raises(OffsetOutOfRange):
            await server.fetch(AtOffset(6))
        assert (await server.publish(text("x", partition=0)))[0].offset == 12
        assert await enforced(server) == [8, 1, 0, 0]


async def test_by_age_whole_batches_go(log: Log) -> None:
    async with log.server() as server:
        await server.create(2)
        for partition in range(2):
            await server.publish(text("old", partition=partition), text("older", partition=partition))
        (_, last) = await server.heads()

        async def is_old() -> bool:
            return await _clock(server) - last.appended_at > timedelta(seconds=1)

        await eventually_async(is_old)
        await server.publish(text("new", partition=0))
        await keep(server, Retention(max_age=timedelta(hours=1)))
        assert await enforced(server) == [0, 0]
        (newest, _) = await server.heads()
        await keep(server, Retention(max_age=timedelta(seconds=1)))
        starts = await enforced(server)
        # On a machine so slow that the new message was too old by then, it had to be removed as well.
        in_time = await _clock(server) - newest.appended_at < timedelta(seconds=1)
        assert starts == [2, 2] or (not in_time and starts == [3, 2])


async def test_by_bytes_as_many_whole_batches_stay_as_fit(log: Log) -> None:
    async with log.server() as server:
        topic = await server.create(2)
        for n in range(4):
            for partition in range(2):
                await server.publish(text(f"{n}a", partition=partition), text(f"{n}b", partition=partition))
        (head, _) = await server.heads()
        size = head.total_bytes // 4
        assert head.total_bytes == 4 * size
        await keep(server, Retention(max_bytes=4 * size))
        assert await enforced(server) == [0, 0]
        await keep(server, Retention(max_bytes=3 * size + 1))
        assert await enforced(server) == [2, 2]
        await keep(server, Retention(max_bytes=2 * size - 1))
        assert await enforced(server) == [6, 6]
        assert await server.values(1) == ["3a", "3b"]
        assert topic.partitions == 2


async def test_two_servers_may_enforce_at_once(log: Log) -> None:
    async with log.servers(2) as servers:
        await servers[0].create(2, Retention(max_count=3))
        await servers[0].publish(*(text(str(n), partition=n % 2) for n in range(20)))
        await asyncio.gather(*(RetentionEnforcer(server.engine).work() for server in servers))
        assert [head.log_start for head in await servers[1].heads()] == [7, 7]
        assert [await servers[0].values(p) for p in range(2)] == [["14", "16", "18"], ["15", "17", "19"]]


async def test_retired_tables_are_dropped_and_publishing_continues(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(2, Retention(max_count=2))
        roller = Roller(here.engine, max_bytes=0)
        for n in range(6):
            await here.publish(*(text(f"{n}", partition=p) for p in range(2)))
            await there.publish(*(text(f"{n}'", partition=p) for p in range(2)))
            await RetentionEnforcer(there.engine).work()
            await roller.work()
            await Trimmer(there.engine).work()
        for server in (here, there):
            for partition in range(2):
                assert await server.values(partition) == ["5", "5'"]
        assert [(head.log_start, head.next_offset) for head in await there.heads()] == [(10, 12)] * 2
