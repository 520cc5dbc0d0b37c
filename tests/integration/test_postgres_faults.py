"""The partition store's errors when PostgreSQL is lost, stopped, or blocked by a reader."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import warnings
from collections.abc import Iterator

import asyncpg
import pytest

from lakelog.errors import ConfigurationError, OutcomeUnknown, Unavailable
from lakelog.storage.postgres import migrate, open_store
from lakelog.storage.postgres.connection import Database
from lakelog.storage.store import Append, Appended, Payload
from tests.kit.postgres import Cluster
from tests.kit.proxy import FaultProxy
from tests.kit.waiting import eventually_async

PID = 1 << 16


def append_of(data: bytes = b"x") -> Append:
    return Append(pid=PID, epoch=1, payloads=[Payload(data=data, count=1)])


async def lose_answers(cluster: Cluster, database: str) -> None:
    await migrate(database)
    with FaultProxy("127.0.0.1", cluster.port) as proxy:
        store = await open_store(database.replace(f":{cluster.port}/", f":{proxy.port}/"))
        await store.heads_create([PID], 1)
        await store.append([append_of()])
        proxy.drop_answers(1)
        with pytest.raises(OutcomeUnknown):
            await store.append([append_of()])
        assert proxy.dropped == 1
        proxy.cut_off()
        with pytest.raises(Unavailable):
            await store.append([append_of()])
        proxy.pass_through()
        (answer,) = await store.append([append_of()])
        assert isinstance(answer, Appended)
        assert answer.base == 2, "the append whose answer was lost is there, the refused one is not"
        await store.close()


def test_a_lost_answer_is_unknown_and_a_closed_door_is_unavailable(cluster: Cluster, database: str) -> None:
    asyncio.run(lose_answers(cluster, database))
    with warnings.catch_warnings():
        # asyncpg leaves the socket of a connection that was cut during the handshake to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def test_a_drop_gives_way_to_a_reader_and_comes_back(database: str) -> None:
    """A hot table that was read in an open transaction stays, and no caller waits for it."""
    await migrate(database)
    store = await open_store(database)
    reader = await asyncpg.connect(database)
    try:
        await store.heads_create([PID], 1)
        await store.append([append_of()])
        old = (await store.roll_active()).roll
        await reader.execute("begin")
        await reader.fetch(f"select count(*) from lakelog.hot_{old}")
        await store.roll()
        await store.log_start_raise([(PID, 1)])
        assert await store.rolls_drop() == []
        (answer,) = await asyncio.wait_for(store.append([append_of()]), 15)
        assert isinstance(answer, Appended)
        await reader.execute("rollback")
        assert await store.rolls_drop() == [old]
        (answer,) = await store.append([append_of()])
        assert isinstance(answer, Appended)
        assert answer.base == 2
    finally:
        await reader.close()
        await store.close()


async def test_announcements_continue_after_their_connection_was_closed(database: str) -> None:
    await migrate(database)
    listening, telling = await open_store(database), await open_store(database)
    heard: asyncio.Queue[set[int]] = asyncio.Queue()

    async def listen() -> None:
        async for grown in listening.announcements():
            heard.put_nowait(grown)

    task = asyncio.create_task(listen())
    admin = await asyncpg.connect(database)
    try:
        assert await asyncio.wait_for(heard.get(), 20) == set()
        await admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            # Its last statement is the check that follows each second.
            "where application_name = 'lakelog' and (query ilike 'listen%' or query like '%transaction_read_only%') "
            "and datname = current_database()"
        )
        assert await asyncio.wait_for(heard.get(), 20) == set(), "a reconnect says that anything may have grown"
        await telling.announce([5, 7])
        assert await asyncio.wait_for(heard.get(), 20) == {5, 7}
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await admin.close()
        await listening.close()
        await telling.close()


async def test_weak_settings_are_named(cluster: Cluster, database: str) -> None:
    await migrate(database)
    store = await open_store(database)
    assert list((await store.durability()).weak) == []
    await store.close()
    admin = await asyncpg.connect(database)
    name = await admin.fetchval("select current_database()")
    await admin.execute(f'alter database "{name}" set synchronous_commit = off')
    await admin.close()
    store = await open_store(database)
    assert list((await store.durability()).weak) == ["synchronous_commit=off"]
    await store.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_cancelled_calls_during_a_kill_of_postgresql_affect_no_others() -> None:
    """A connection that breaks while it is released is dropped, and never used by two callers."""
    with Cluster() as own:
        url = own.create_database()
        await migrate(url)
        database = await Database.open(url, size=4)
        chance, wrong, served, stop = random.Random(1), list[BaseException](), 0, asyncio.Event()

        async def caller() -> None:
            nonlocal served
            while not stop.is_set():
                try:
                    number = chance.randrange(1 << 30)
                    rows = await asyncio.wait_for(
                        database.read("select $1::int, pg_sleep(0.002)", number), chance.random() / 2
                    )
                    assert rows[0][0] == number
                    served += 1
                except (TimeoutError, Unavailable):
                    await asyncio.sleep(0.01)
                except BaseException as error:
                    wrong.append(error)

        async def served_more() -> None:
            before = served
            await eventually_async(lambda: served > before + 200, within=60)

        callers = [asyncio.create_task(caller()) for _ in range(20)]
        for _ in range(3):
            await served_more()
            await asyncio.to_thread(own.kill9)
            await asyncio.to_thread(own.start)
        await served_more()
        stop.set()
        await asyncio.gather(*callers)
        await database.close()
        assert not wrong


@pytest.fixture(scope="module")
def strict() -> Iterator[Cluster]:
    """Start a cluster that requires the password `right` from the user `svc`."""
    with Cluster() as own:
        own.execute("create role svc login superuser password 'right'")
        rules = own.folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all svc 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        own.execute("select pg_reload_conf()")
        yield own


def as_user(cluster: Cluster, url: str, login: str, query: str = "") -> str:
    return f"postgresql://{login}@127.0.0.1:{cluster.port}/{url.rpartition('/')[2]}{query}"


@pytest.mark.parametrize(
    ("login", "database", "query", "reason"),
    [
        ("svc:wr0ng", None, "", 'password authentication failed for user "svc"'),
        ("stranger:wr0ng", None, "", 'role "stranger" does not exist'),
        ("svc:right", "missing", "", 'database "missing" does not exist'),
        ("svc:right", None, "?sslmode=require", "the server does not support TLS"),
        ("svc:right", None, "?sslmode=wrong", "sslmode"),
    ],
)
async def test_a_refused_connection_is_reported_as_what_it_is(
    strict: Cluster, login: str, database: str | None, query: str, reason: str
) -> None:
    name = database or strict.create_database().rpartition("/")[2]
    url = as_user(strict, name, login, query)
    for attempt in (open_store(url), migrate(url)):
        with pytest.raises(ConfigurationError) as caught:
            await attempt
        detail = caught.value.detail
        assert not caught.value.retryable and reason in detail
        assert f"127.0.0.1:{strict.port}/{name}" in detail and f"user {login.partition(':')[0]}" in detail
        assert "wr0ng" not in detail and "right" not in detail


async def test_an_outage_has_a_first_line_and_a_last_one(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster() as own:
        url = own.create_database()
        await migrate(url)
        catalog, cell = await Database.open(url), await Database.open(url)
        await asyncio.to_thread(own.stop)
        for _ in range(20):
            for database in (catalog, cell):
                with pytest.raises(Unavailable) as caught:
                    await database.read("select 1")
        assert str(caught.value.database) in caught.value.detail
        await asyncio.to_thread(own.start)
        for database in (catalog, cell):
            await database.read("select 1")
            await database.close()
        name = f"PostgreSQL at 127.0.0.1:{own.port}/{url.rpartition('/')[2]}"
    assert caplog.messages[0] == f"{name}: connection refused"
    assert caplog.messages[-1].startswith(f"{name}: available again after ")
    assert "(40 failures)" in caplog.messages[-1] and len(caplog.messages) == 2


async def test_a_password_that_changes_is_logged_as_that_until_it_is_corrected(
    strict: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    url = as_user(strict, strict.create_database(), "svc:right")
    await migrate(url)
    database = await Database.open(url)
    kept = await database.connect()
    try:
        strict.execute("alter role svc password 'other'")
        held = [asyncio.create_task(database.read("select pg_sleep(0.2)")) for _ in range(2)]
        with pytest.raises(Unavailable):
            await asyncio.gather(*held)
        await asyncio.wait(held)
        await database.read("select 1")
        (line,) = caplog.records
        assert line.levelno == logging.ERROR and "connection of user svc refused: password" in line.getMessage()
        strict.execute("alter role svc password 'right'")
        await asyncio.gather(*(database.read("select pg_sleep(0.2)") for _ in range(2)))
        assert "available again" in caplog.messages[-1] and len(caplog.messages) == 2
    finally:
        await kept.close()
        await database.close()
        strict.execute("alter role svc password 'right'")
