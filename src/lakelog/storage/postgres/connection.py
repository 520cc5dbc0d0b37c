"""Connections to one PostgreSQL database: how many, their settings, and what its errors mean to a caller.

The only decision made here is whether a failed call may have been written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import LiteralString

import asyncpg

from lakelog.errors import ConfigurationError, OutcomeUnknown, SchemaOutOfDate, Unavailable
from lakelog.storage.postgres.queries import load

POOL_SIZE = 8
ACQUIRE_SECONDS = 10.0
SETTINGS = {
    "application_name": "lakelog",
    # An ANALYZE of a table that happens to be tiny would turn every head look-up into a scan of the journal.
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "statement_timeout": "20s",
    "idle_in_transaction_session_timeout": "30s",
    "timezone": "UTC",
}

# Errors that end a statement before it could commit. Anything else that ends a connection leaves the outcome unknown.
_DEFINITE = (
    asyncpg.QueryCanceledError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.OutOfMemoryError,
    asyncpg.DiskFullError,
    asyncpg.TooManyConnectionsError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,
)
_MISCONFIGURED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # What a connection says that heard of its end just now, before it closes.
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
    asyncpg.OperatorInterventionError,
)


class Database:
    """Connections to one database, at most so many at a time."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._room = asyncio.Semaphore(size)
        self._idle: list[asyncpg.Connection] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @classmethod
    async def open(cls, url: str, *, size: int = POOL_SIZE) -> Database:
        database = cls(url, size)
        try:
            await database.check_schema()
        except BaseException:
            await database.close()
            raise
        return database

    async def check_schema(self) -> None:
        from lakelog.storage.postgres.migrate import newest_version

        try:
            version = (await self.read(load("partitions")["schema_version"]))[0][0]
        except (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError):
            version = None
        if version is None or version < newest_version():
            raise SchemaOutOfDate("The database's schema is missing or older than this version; run `lakelog migrate`.")

    async def read(self, query: LiteralString, *arguments: object) -> list[asyncpg.Record]:
        """The rows of a statement that can be repeated: whatever is lost is `Unavailable`."""
        try:
            return await self.write(query, *arguments)
        except OutcomeUnknown as error:
            raise Unavailable(error.detail) from error

    async def write(self, query: LiteralString, *arguments: object) -> list[asyncpg.Record]:
        """The rows of a statement that writes: a connection lost under way is `OutcomeUnknown`."""
        try:
            async with self._connection() as connection:
                return await connection.fetch(query, *arguments)
        except _DEFINITE as error:
            raise Unavailable(f"PostgreSQL gave up on the statement: {error}.") from error
        except _LOST as error:
            raise OutcomeUnknown(f"The connection to PostgreSQL was lost: {error or type(error).__name__}.") from error
        except _MISCONFIGURED as error:
            raise ConfigurationError(
                f"The service's database user lacks a right: {error}. Grant it lakelog_service."
            ) from error

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        """One for a statement. Only one that ended well, or by an error of the statement, is used again."""
        connection = await self._take()
        try:
            yield connection
        except (asyncio.CancelledError, TimeoutError):
            leaving = asyncio.create_task(self._leave(connection))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            await asyncio.shield(leaving)
            raise
        except BaseException as error:
            if isinstance(error, _LOST) or not isinstance(error, asyncpg.PostgresError):
                connection.terminate()
            self._give_back(connection)
            raise
        self._give_back(connection)

    async def _leave(self, connection: asyncpg.Connection) -> None:
        """The server is asked to stop the statement that somebody gave up: nobody else can use the connection."""
        try:
            await _ended(connection, 10)
        finally:
            self._room.release()

    async def _take(self) -> asyncpg.Connection:
        """The one that was used last, or a new one. Not asyncpg's pool: it gives one connection to two callers if that
        one breaks while it is given back."""
        try:
            async with asyncio.timeout(ACQUIRE_SECONDS):
                await self._room.acquire()
            try:
                return self._kept() or await self._connected()
            except BaseException:
                self._room.release()
                raise
        except _MISCONFIGURED as error:
            raise ConfigurationError(
                f"PostgreSQL refuses the connection: {error}. Check the URL and the user's rights."
            ) from error
        except (*_LOST, asyncpg.PostgresError) as error:
            raise Unavailable(f"PostgreSQL cannot be reached: {error or type(error).__name__}.") from error

    def _kept(self) -> asyncpg.Connection | None:
        while self._idle:
            if not (connection := self._idle.pop()).is_closed():
                return connection
        return None

    async def _connected(self) -> asyncpg.Connection:
        return await asyncpg.connect(self._url, server_settings=SETTINGS, command_timeout=30, timeout=10)

    def _give_back(self, connection: asyncpg.Connection) -> None:
        if self._is_closed:
            connection.terminate()
        elif not connection.is_closed():
            self._idle.append(connection)
        self._room.release()

    async def connect(self) -> asyncpg.Connection:
        """A connection of its own, to keep for listening; the caller ends it."""
        try:
            return await asyncpg.connect(self._url, server_settings=SETTINGS, timeout=10)
        except (*_LOST, asyncpg.PostgresError) as error:
            raise Unavailable(f"PostgreSQL cannot be reached: {error or type(error).__name__}.") from error

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.gather(*self._leaving)
        for connection in self._idle:
            await _ended(connection, 5)
        self._idle.clear()
        # The loop closes sockets in its next turn; a loop that ended before would leave them to the garbage collector.
        await asyncio.sleep(0)


async def _ended(connection: asyncpg.Connection, seconds: float) -> None:
    """Politely, if the server still answers."""
    try:
        await connection.close(timeout=seconds)
    except (*_LOST, asyncpg.PostgresError):
        connection.terminate()
