"""`publish(…, transaction=…)` with each database library: published if and only if the caller's transaction commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import lakelog
from lakelog.errors import InvalidRequest
from lakelog.model.message import Message
from lakelog.model.position import OutboxReceipt
from lakelog.storage.postgres import install_outbox, migrate
from tests.integration.outbox_kit import opened, poll_until_idle

Begin = Callable[[str], AbstractContextManager[object]]
BeginAsync = Callable[[str], AbstractAsyncContextManager[object]]


def _sqlalchemy(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def with_psycopg(url: str) -> Iterator[object]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection


@contextmanager
def with_psycopg_cursor(url: str) -> Iterator[object]:
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction(), connection.cursor() as cursor:
        yield cursor


@contextmanager
def with_sqlalchemy_session(url: str) -> Iterator[object]:
    engine = sqlalchemy.create_engine(_sqlalchemy(url, "psycopg"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def with_sqlalchemy_connection(url: str) -> Iterator[object]:
    engine = sqlalchemy.create_engine(_sqlalchemy(url, "psycopg"), isolation_level="REPEATABLE READ")
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def with_django(url: str) -> Iterator[object]:
    from django.db import connection, transaction  # type: ignore[import-untyped]

    configure_django(url)
    try:
        with transaction.atomic():
            yield connection
    finally:
        connection.close()


def configure_django(url: str) -> None:
    """Let Django use the database from now on."""
    import django  # type: ignore[import-untyped]
    from django.conf import settings  # type: ignore[import-untyped]
    from django.db import connections  # type: ignore[import-untyped]

    info = psycopg.conninfo.conninfo_to_dict(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": info["dbname"],
        "HOST": info["host"],
        "PORT": info["port"],
        "USER": info["user"],
    }
    if not settings.configured:
        settings.configure(DATABASES={"default": database})
        django.setup()
    connections.close_all()
    connections["default"].settings_dict.update(database)


@asynccontextmanager
async def with_async_psycopg(url: str) -> AsyncIterator[object]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def with_asyncpg(url: str) -> AsyncIterator[object]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def with_asyncpg_pool(url: str) -> AsyncIterator[object]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def with_async_session(url: str) -> AsyncIterator[object]:
    engine = create_async_engine(_sqlalchemy(url, "asyncpg"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def with_async_sqlalchemy_connection(url: str) -> AsyncIterator[object]:
    engine = create_async_engine(_sqlalchemy(url, "psycopg"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


SYNC: list[Begin] = [
    with_psycopg,
    with_psycopg_cursor,
    with_sqlalchemy_session,
    with_sqlalchemy_connection,
    with_django,
]
ASYNC: list[BeginAsync] = [
    with_async_psycopg,
    with_asyncpg,
    with_asyncpg_pool,
    with_async_session,
    with_async_sqlalchemy_connection,
]


@pytest.fixture(scope="module")
def log_url(cluster: Any) -> Iterator[str]:
    """A migrated database with an outbox and the topic `orders`."""
    url = cluster.create_database()
    asyncio.run(migrate(url))
    asyncio.run(install_outbox(url))
    with lakelog.connect(url) as log:
        log.topic("orders").create()
    yield url
    cluster.drop_database(url)


def ids(url: str) -> list[str]:
    """Return the ids of the messages in the outbox, in order."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select format('outbox-%s-%s-%s', outbox_id, number, salt) "
            "from lakelog_outbox.message, lakelog_outbox.settings "
            "order by number"
        ).fetchall()
    return [row[0] for row in rows]


@pytest.mark.parametrize("begin", SYNC)
def test_a_sync_transaction_decides(log_url: str, begin: Begin) -> None:
    before = ids(log_url)
    with lakelog.connect(log_url) as log:
        orders = log.topic("orders", on_publish=lambda receipt: pytest.fail("the message is not published yet"))
        with begin(log_url) as connection:
            receipt = orders.publish({"total": 1}, key="a", transaction=connection)
            many = orders.publish_many([{"total": 2}, lakelog.Outgoing("b", key="k")], transaction=connection)
            assert ids(log_url) == before
        with pytest.raises(ZeroDivisionError), begin(log_url) as connection:
            orders.publish({"total": 3}, transaction=connection)
            raise ZeroDivisionError
    assert isinstance(receipt, OutboxReceipt) and receipt.offset is None
    assert ids(log_url) == [*before, receipt.id, *(each.id for each in many)]


@pytest.mark.parametrize("begin", ASYNC)
async def test_an_async_transaction_decides(log_url: str, begin: BeginAsync) -> None:
    before = ids(log_url)
    async with lakelog.connect_async(log_url) as log:
        orders = log.topic("orders")
        async with begin(log_url) as connection:
            receipt = await orders.publish({"total": 1}, key="a", transaction=connection)
            many = await orders.publish_many([{"total": 2}, {"total": 3}], transaction=connection)
            assert ids(log_url) == before
        with pytest.raises(ZeroDivisionError):
            async with begin(log_url) as connection:
                await orders.publish({"total": 3}, transaction=connection)
                raise ZeroDivisionError
    assert ids(log_url) == [*before, receipt.id, *(each.id for each in many)]


def test_a_sync_client_refuses_what_is_no_open_sync_transaction(log_url: str) -> None:
    async def asynchronous() -> list[object]:
        connection = await asyncpg.connect(log_url)
        other = await psycopg.AsyncConnection.connect(log_url)
        engine = create_async_engine(_sqlalchemy(log_url, "asyncpg"))
        found: list[object] = [connection, other, AsyncSession(engine)]
        await connection.close()
        await other.close()
        return found

    with lakelog.connect(log_url) as log:
        orders = log.topic("orders")
        for connection in asyncio.run(asynchronous()):
            with pytest.raises(InvalidRequest, match="This client is synchronous"):
                orders.publish(1, key="k", transaction=connection)
        for wrong in (log_url, object(), 7):
            with pytest.raises(InvalidRequest, match="`transaction` must be"):
                orders.publish(1, transaction=wrong)
        with (
            psycopg.connect(log_url, autocommit=True) as connection,
            pytest.raises(InvalidRequest, match="no open transaction"),
        ):
            orders.publish(1, transaction=connection)
        configure_django(log_url)
        from django.db import connection as django_connection

        with pytest.raises(InvalidRequest, match="atomic"):
            orders.publish(1, transaction=django_connection)
        django_connection.close()
        with psycopg.connect(log_url) as connection, pytest.raises(InvalidRequest, match="character 0"):
            orders.publish(1, headers={"a": "\0"}, transaction=connection)


async def test_an_async_client_refuses_what_is_no_open_async_transaction(log_url: str) -> None:
    async with lakelog.connect_async(log_url) as log:
        orders = log.topic("orders")
        with psycopg.connect(log_url) as connection, pytest.raises(InvalidRequest, match="This client is asynchronous"):
            await orders.publish(1, transaction=connection)
        engine = sqlalchemy.create_engine(_sqlalchemy(log_url, "psycopg"))
        with Session(engine) as session, pytest.raises(InvalidRequest, match="This client is asynchronous"):
            await orders.publish(1, transaction=session)
        engine.dispose()
        asynchronous = await asyncpg.connect(log_url)
        with pytest.raises(InvalidRequest, match="no open transaction"):
            await orders.publish(1, transaction=asynchronous)
        await asynchronous.close()


def test_a_log_in_memory_has_no_relay(log_url: str) -> None:
    with lakelog.connect("memory://") as log, psycopg.connect(log_url) as connection:
        log.topic("orders").create()
        with pytest.raises(InvalidRequest, match="log in memory has no relay"):
            log.topic("orders").publish(1, transaction=connection)


async def test_the_client_sends_every_field(database: str) -> None:
    until = datetime(2999, 1, 1, tzinfo=UTC)
    async with opened(database, database) as log, lakelog.connect_async(database) as client:
        topic = await log.create(partitions=3)
        async with log.caller.transaction():
            await client.topic("orders").publish(
                b"\x00\xff",
                key=b"\x01",
                headers={"h": "ä"},
                partition=1,
                idempotency_key="i",
                correlation_id="c",
                content_type="image/png",
                expires=until,
                transaction=log.caller,
            )
        relay = log.relay()
        assert await poll_until_idle(relay) == 1
        await relay.close()
        (message,) = await log.messages(topic)
        assert message == Message(
            value=b"\x00\xff",
            key=b"\x01",
            headers={"h": "ä"},
            content_type="image/png",
            correlation_id="c",
            created_at=message.created_at,
            expires_at=until,
            idempotency_key="i",
        )
