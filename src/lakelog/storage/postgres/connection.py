"""Connections to one PostgreSQL database: the pool, its settings, and what its errors mean to a caller.

The only decision made here is whether a failed call may have been written.
"""

from __future__ import annotations

import asyncio
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
    OSError,
    TimeoutError,
    asyncpg.OperatorInterventionError,
)


class _Connection(asyncpg.Connection):
    """Given back to the pool as it is: we leave nothing behind in a session, and a reset is a round trip per call."""

    def get_reset_query(self) -> str:
        return ""


class Database:
    """A pool of connections to one database."""

    def __init__(self, url: str, pool: asyncpg.Pool) -> None:
        self._url = url
        self._pool = pool

    @classmethod
    async def open(cls, url: str, *, size: int = POOL_SIZE) -> Database:
        try:
            pool = await asyncpg.create_pool(
                url,
                connection_class=_Connection,
                min_size=1,
                max_size=size,
                server_settings=SETTINGS,
                command_timeout=30,
                timeout=10,
            )
        except _MISCONFIGURED as error:
            raise ConfigurationError(
                f"PostgreSQL refuses the connection: {error}. Check the URL and the user's rights."
            ) from error
        except (*_LOST, asyncpg.PostgresError) as error:
            raise Unavailable(f"PostgreSQL cannot be reached: {error or type(error).__name__}.") from error
        database = cls(url, pool)
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
        connection = await self._acquire()
        try:
            return await connection.fetch(query, *arguments)
        except _DEFINITE as error:
            raise Unavailable(f"PostgreSQL gave up on the statement: {error}.") from error
        except _LOST as error:
            raise OutcomeUnknown(f"The connection to PostgreSQL was lost: {error or type(error).__name__}.") from error
        except _MISCONFIGURED as error:
            raise ConfigurationError(
                f"The service's database user lacks a right: {error}. Grant it lakelog_service."
            ) from error
        finally:
            await self._release(connection)

    async def _acquire(self) -> asyncpg.pool.PoolConnectionProxy:
        try:
            return await self._pool.acquire(timeout=ACQUIRE_SECONDS)
        except _MISCONFIGURED as error:
            raise ConfigurationError(f"PostgreSQL refuses the connection: {error}.") from error
        except (*_LOST, asyncpg.PostgresError) as error:
            raise Unavailable(f"PostgreSQL cannot be reached: {error or type(error).__name__}.") from error

    async def _release(self, connection: asyncpg.pool.PoolConnectionProxy) -> None:
        # A cancelled caller must not leave the release half done: the pool would lose the connection for good.
        await asyncio.shield(self._pool.release(connection))

    async def connect(self) -> asyncpg.Connection:
        """A connection of its own, to keep for listening; the caller ends it."""
        try:
            return await asyncpg.connect(self._url, server_settings=SETTINGS, timeout=10)
        except (*_LOST, asyncpg.PostgresError) as error:
            raise Unavailable(f"PostgreSQL cannot be reached: {error or type(error).__name__}.") from error

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), 5)
        except TimeoutError:
            self._pool.terminate()
        # The loop closes sockets in its next turn; a loop that ended before would leave them to the garbage collector.
        await asyncio.sleep(0)
