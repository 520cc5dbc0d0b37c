"""Connections to PostgreSQL: their number, the share of background work, and the connection that listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from lakelog.engine import Engine
from lakelog.engine.changes import CACHE_SECONDS, DOUBT_SECONDS
from lakelog.meters import CONNECTION_WAITS
from lakelog.model.lease import ConsumeRequest
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.background import is_background
from lakelog.storage.postgres import migrate, open_store, open_stores
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.connection_room import CONNECTIONS
from tests.kit.postgres import Cluster
from tests.kit.proxy import FaultProxy
from tests.kit.waiting import eventually_async

ENGINES = 10
_COUNT = "select count(*) from pg_stat_activity where application_name = 'lakelog' and datname = current_database()"


@asynccontextmanager
async def engine_on(url: str, connections: int = CONNECTIONS) -> AsyncIterator[Engine]:
    engine = Engine(*await open_stores(url, {}, connections=connections))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def work(engine: Engine, scope: Scope, number: int) -> None:
    """Call what needs connections for the catalog, the log, the groups and announcements."""
    name = f"topic-{number}"
    await engine.topics.create(scope, name, if_missing=True)
    await engine.publisher.messages(scope, name, [Message(value=b"x")])
    request = ConsumeRequest(topic=name, group=name, owner="ann", wait_ms=100)
    await engine.leases.consume(scope, request)


async def most(admin: asyncpg.Connection, running: asyncio.Future[object]) -> int:
    """Return the largest number of connections while the work is running."""
    found = 0
    while not running.done():
        found = max(found, await admin.fetchval(_COUNT))
        await asyncio.sleep(0.005)
    return found


async def test_a_process_has_at_most_six_connections_and_ten_have_sixty(database: str) -> None:
    await migrate(database)
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(engine_on(database))]
        scope = await engines[0].catalog.scope_create("shop", "test")
        admin = await asyncpg.connect(database)
        stack.push_async_callback(admin.close)
        one = asyncio.gather(*(work(engines[0], scope, number) for number in range(40)))
        assert await most(admin, one) <= CONNECTIONS
        await one
        engines += [await stack.enter_async_context(engine_on(database)) for _ in range(ENGINES - 1)]
        everyone = asyncio.gather(*(work(each, scope, n) for n, each in enumerate(engines * 10)))
        assert CONNECTIONS < await most(admin, everyone) <= ENGINES * CONNECTIONS
        await everyone


async def test_two_connections_are_enough(database: str) -> None:
    await migrate(database)
    async with engine_on(database, connections=2) as engine:
        scope = await engine.catalog.scope_create("shop", "test")
        admin = await asyncpg.connect(database)
        try:
            running = asyncio.gather(*(work(engine, scope, number) for number in range(20)))
            assert await most(admin, running) <= 2
            await running
        finally:
            await admin.close()


async def test_background_work_leaves_connections_to_callers(database: str) -> None:
    await migrate(database)
    pool, admin = await Database.open(database, size=4), await asyncpg.connect(database)

    async def background(seconds: float) -> None:
        is_background.set(True)
        await pool.read("select pg_sleep($1)", seconds)

    async def sleeping() -> int:
        return int(
            await admin.fetchval(
                "select count(*) from pg_stat_activity where query = 'select pg_sleep($1)' and state = 'active'"
            )
        )

    try:
        # Longer than callers wait here: none of them waits for one of these.
        tasks = [asyncio.create_task(background(15)) for _ in range(6)]
        await eventually_async(sleeping)
        for _ in range(10):
            await asyncio.wait_for(pool.read("select 1"), 10)
            assert await sleeping() <= 2
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(asyncio.gather(*(asyncio.create_task(background(0.1)) for _ in range(4))), 10)
    finally:
        await pool.close()
        await admin.close()


async def test_statements_that_wait_for_a_connection_are_counted(database: str) -> None:
    await migrate(database)
    pool, before = await Database.open(database, size=1), (CONNECTION_WAITS.count, CONNECTION_WAITS.seconds)
    try:
        await pool.read("select 1")
        assert CONNECTION_WAITS.count == before[0]
        await asyncio.gather(pool.read("select pg_sleep(0.05)"), pool.read("select 1"))
        assert CONNECTION_WAITS.count == before[0] + 1
        assert CONNECTION_WAITS.seconds - before[1] >= 0.04
    finally:
        await pool.close()


async def test_the_other_processes_that_announce_are_counted(database: str) -> None:
    await migrate(database)
    async with AsyncExitStack() as stack:
        stores = [await open_store(database) for _ in range(4)]
        for store in stores:
            stack.push_async_callback(store.close)
        heard: list[set[int]] = []

        async def listen() -> None:
            async for numbers in stores[0].announcements():
                heard.append(numbers)

        listening = asyncio.create_task(listen())
        stack.callback(listening.cancel)
        await eventually_async(lambda: stores[0].is_listening)

        async def are_counted() -> bool:
            # Repeated, because a process is forgotten after two seconds.
            for store in (*stores[:3], stores[2]):
                await store.announce([7])
            return stores[0].senders == 2

        await eventually_async(are_counted)
        await eventually_async(lambda: stores[0].senders == 0, what="they fell silent")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_caches_are_short_while_the_connection_that_listens_is_in_doubt(cluster: Cluster, database: str) -> None:
    """A link that swallows everything looks like one without announcements."""
    await migrate(database)
    with FaultProxy("127.0.0.1", cluster.port) as proxy:
        async with engine_on(database.replace(f":{cluster.port}/", f":{proxy.port}/")) as engine:
            await eventually_async(lambda: engine._changes.cache_seconds == CACHE_SECONDS)
            proxy.half_open()
            await eventually_async(lambda: engine._changes.cache_seconds == DOUBT_SECONDS)
            proxy.pass_through()
            proxy.reset_connections()
            await eventually_async(lambda: engine._changes.cache_seconds == CACHE_SECONDS, within=20)
