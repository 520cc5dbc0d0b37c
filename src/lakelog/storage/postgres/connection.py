"""Connections to one PostgreSQL database: their number, their settings and the translation of errors.

The only decision made here is whether a failed call may have been written. A result counts only if its connection is on
the highest timeline of the database that this process has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import LiteralString

import asyncpg

from lakelog.errors import ConfigurationError, LakelogError, OutcomeUnknown, SchemaOutOfDate, Unavailable
from lakelog.meters import CONNECTION_WAITS
from lakelog.storage.postgres.address import DatabaseAddress, address_of
from lakelog.storage.postgres.connecting import LOST, NotWritable, Session, open_session, reason_of
from lakelog.storage.postgres.connection_room import POOL_SIZE, ConnectionRoom
from lakelog.storage.postgres.late_check import LateCheck
from lakelog.storage.postgres.outages import outages_of
from lakelog.storage.postgres.queries import load
from lakelog.storage.postgres.timeline import Follower, timeline_of

TRIM_ROWS = 20_000
"""Number of rows that one statement of background work deletes."""
ACQUIRE_SECONDS = 10.0
WAIT_SECONDS = 0.001
"""A statement that waits for a connection for less than this is not counted as waiting."""
CHECK_SECONDS = 2.0
SETTINGS = {
    "application_name": "lakelog",
    # An ANALYZE of a table that is still tiny would turn every head lookup into a scan of the journal.
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "statement_timeout": "20s",
    "idle_in_transaction_session_timeout": "30s",
    "timezone": "UTC",
}

# Errors that end a statement before it commits. Any other error that ends a connection leaves the outcome unknown.
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

_SQL = load("partitions")


class Database:
    """Connections to one database, at most `size` at a time."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._address = address_of(url)
        self._size = size
        self._outages = outages_of(self._address)
        self._is_open = False
        self._room = ConnectionRoom(size)
        self._idle: list[Session] = []
        self._used: set[Session] = set()
        self.timeline = timeline_of(self._address)
        self._followers: list[Follower] = [self.timeline.follow(self._leave_lower)]
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._late: LateCheck | None = None

    @classmethod
    async def open(cls, url: str, *, size: int = POOL_SIZE) -> Database:
        database = cls(url, size)
        try:
            await database.check_schema()
        except BaseException:
            await database.close()
            raise
        database._is_open = True
        return database

    @classmethod
    def open_later(
        cls, url: str, error: Unavailable, check: Callable[[], Awaitable[None]], *, size: int = POOL_SIZE
    ) -> Database:
        """Return a database that could not be reached. Calls fail with `Unavailable` until `check` has succeeded once.

        Args:
            url: The URL.
            error: Why it could not be reached.
            check: Raises an error if it still cannot be reached, or is not the expected database.
            size: The largest number of connections for statements.
        """
        database = cls(url, size)
        database._is_open = True
        database._late = LateCheck(check, str(database._address))
        database._outages.not_connected(error)
        return database

    @property
    def address(self) -> DatabaseAddress:
        return self._address

    async def check_schema(self) -> None:
        from lakelog.storage.postgres.migrate import newest_version

        try:
            version = (await self.read(_SQL["schema_version_read"]))[0][0]
        except (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError):
            version = None
        if version is None or version < newest_version():
            raise SchemaOutOfDate(
                f"The schema of PostgreSQL at {self._address} is missing or older than this version. "
                "Run `lakelog migrate`."
            )

    def on_replaced(self, call: Callable[[], None]) -> None:
        """Call `call` when a promoted standby has replaced the data, before any of the new data is returned."""
        self._followers.append(self.timeline.follow(call))

    async def check(self) -> None:
        """Raise `Unavailable` if the database does not respond or accepts no writes."""
        try:
            async with self._connection() as session:
                try:
                    async with asyncio.timeout(CHECK_SECONDS):
                        await session.check(self.timeline.number)
                except TimeoutError:
                    session.terminate()
                    raise self._unavailable(f"did not respond within {CHECK_SECONDS:g} s") from None
        except NotWritable as error:
            raise self._unavailable(str(error)) from error
        except (*LOST, asyncpg.PostgresError) as error:
            raise self._unavailable(f"cannot be reached: {reason_of(error)}") from error

    async def read(self, query: LiteralString, *arguments: object) -> list[asyncpg.Record]:
        """Return the rows of a repeatable statement. A lost connection raises `Unavailable`."""
        try:
            return await self.write(query, *arguments)
        except OutcomeUnknown as error:
            raise Unavailable(error.detail, **error.subject) from error

    async def write(self, query: LiteralString, *arguments: object) -> list[asyncpg.Record]:
        """Return the rows of a statement that writes. A connection lost during it raises `OutcomeUnknown`."""
        return await self._run(query, arguments)

    async def write_both(
        self, query: LiteralString, arguments: Sequence[object], then: LiteralString, given: Sequence[object]
    ) -> list[asyncpg.Record]:
        """Like `write`. If there are rows, run another statement with other arguments in the same transaction."""
        return await self._run(query, arguments, (then, given))

    async def _run(
        self,
        query: LiteralString,
        arguments: Sequence[object],
        then: tuple[LiteralString, Sequence[object]] | None = None,
    ) -> list[asyncpg.Record]:
        try:
            async with self._connection() as session:
                if self.timeline.is_unconfirmed:
                    await self._await_standby(session)
                if then is None:
                    rows = await session.fetch(query, *arguments)
                else:
                    rows = await _fetch_both(session, query, arguments, *then)
                self._confirm(session)
        except _DEFINITE as error:
            self._outages.statement_failed(reason_of(error))
            raise self._unavailable(f"did not complete the statement: {reason_of(error)}") from error
        except LOST as error:
            self.lost(error)
            raise self._unknown(
                f"The connection to PostgreSQL at {self._address} was lost: {reason_of(error)}."
            ) from error
        except asyncpg.InsufficientPrivilegeError as error:
            raise ConfigurationError(
                f"User {self._address.user} of PostgreSQL at {self._address} lacks a right: {error}. "
                f"Run `GRANT lakelog_service TO {self._address.user}`.",
                database=str(self._address),
            ) from error
        if self._outages.is_on:
            self._outages.answered()
        return rows

    def _confirm(self, session: Session) -> None:
        """Raise `OutcomeUnknown` if the last write of the session could be missing on the promoted node."""
        if session.timeline != self.timeline.number:
            raise self._unknown(f"PostgreSQL at {self._address} was replaced by a promoted standby during the call.")
        if session.is_unconfirmed:
            session.is_unconfirmed, self.timeline.is_unconfirmed = False, True
            raise self._unknown(
                f"PostgreSQL at {self._address} cancelled the wait for its synchronous standby: the call took effect, "
                "and a failover could lose it."
            )

    def check_timeline(self, before: int) -> int:
        """Return the timeline, or raise `OutcomeUnknown` if an earlier write of the call was on another one."""
        if before not in (0, self.timeline.number):
            raise self._unknown(f"PostgreSQL at {self._address} was replaced by a promoted standby during the call.")
        return self.timeline.number

    async def _await_standby(self, session: Session) -> None:
        """Make a small commit, which waits until the synchronous standby has it and everything before it.

        Otherwise a repeat that finds an unconfirmed write would be answered with success.
        """
        await session.fetch(_SQL["standby_await"])
        if session.is_unconfirmed:
            session.is_unconfirmed = False
            raise self._unavailable("waits for its synchronous standby")
        self.timeline.is_unconfirmed = False

    async def await_standby(self) -> None:
        """Wait until the synchronous standby, if there is one, has everything that is visible now."""
        await self.write(_SQL["standby_await"])

    def _unknown(self, detail: str) -> OutcomeUnknown:
        return OutcomeUnknown(detail, unreachable="database", database=str(self._address))

    async def walk(self, query: LiteralString, *limits: int, leading: Sequence[object] = ()) -> int:
        """Repeat a statement that deletes rows of some partitions until it has seen all, and return the number of rows.

        Its arguments are `leading`, the partition behind which it begins, and `limits`.
        """
        after: int | None = 0
        trimmed = 0
        while after is not None:
            after, found = (await self.write(query, *leading, after, *limits))[0]
            trimmed += found
        return trimmed

    def _unavailable(self, reason: str) -> Unavailable:
        return Unavailable(
            f"PostgreSQL at {self._address} {reason}.", unreachable="database", database=str(self._address)
        )

    def lost(self, error: BaseException) -> None:
        """Log that a connection was lost, once per outage."""
        self._outages.lost(error)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Session]:
        """Provide a connection for a statement. It is reused after success or an error of the statement."""
        connection = await self._take()
        self._used.add(connection)
        try:
            yield connection
        except (asyncio.CancelledError, TimeoutError):
            self._used.discard(connection)
            leaving = asyncio.create_task(self._leave(connection))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            await asyncio.shield(leaving)
            raise
        except BaseException as error:
            if isinstance(error, asyncpg.ReadOnlySQLTransactionError | NotWritable):
                # The node became read-only, and the other connections go to the same node.
                self._close_idle()
                connection.terminate()
            elif isinstance(error, LOST) or not isinstance(error, asyncpg.PostgresError | LakelogError):
                connection.terminate()
            self._give_back(connection)
            raise
        self._give_back(connection)

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()

    def _leave_lower(self) -> None:
        """End the connections to the nodes that were replaced. Statements on them fail immediately."""
        self._close_idle()
        for session in self._used:
            if session.timeline < self.timeline.number:
                session.terminate()

    async def _leave(self, connection: asyncpg.Connection) -> None:
        """Close the connection of a cancelled statement, which asks the server to stop the statement."""
        try:
            await _ended(connection, 10)
        finally:
            self._room.release()

    async def _take(self) -> Session:
        """Return the connection that was used last, or a new one.

        This replaces asyncpg's pool, which gives one connection to two callers if it breaks while it is returned.
        """
        if self._late is not None:
            await self._late.run()
            self._late = None
        try:
            began = perf_counter()
            async with asyncio.timeout(ACQUIRE_SECONDS):
                await self._room.acquire()
            if (waited := perf_counter() - began) >= WAIT_SECONDS:
                CONNECTION_WAITS.add(waited)
        except TimeoutError:
            reason = f"all {self._size} connections of this process were busy for {ACQUIRE_SECONDS:g} s"
            self._outages.statement_failed(reason)
            raise self._unavailable(f"is too slow: {reason}") from None
        try:
            return self._kept() or await self._connect(command_timeout=30)
        except BaseException:
            self._room.release()
            raise

    def _kept(self) -> Session | None:
        while self._idle:
            if not (connection := self._idle.pop()).is_closed():
                return connection
        return None

    async def _connect(self, command_timeout: float | None = None, *, lowest: int | None = None) -> Session:
        if lowest is None:
            lowest = self.timeline.number
        try:
            connection = await open_session(
                self._url, self._address, SETTINGS, lowest=lowest, command_timeout=command_timeout
            )
        except LakelogError as error:
            if not self._is_open:
                raise
            self._outages.not_connected(error)
            # After the start, a refusal is an outage, too: the server recovers when the cause is fixed.
            raise Unavailable(error.detail, **{"unreachable": "database", **error.subject}) from error
        self._outages.connected()
        # Before anything is read through the connection: followers drop what they know of a lower timeline.
        self.timeline.saw(connection.timeline)
        return connection

    def _give_back(self, connection: Session) -> None:
        self._used.discard(connection)
        if self._is_closed or connection.timeline < self.timeline.number:
            connection.terminate()
        elif not connection.is_closed():
            self._idle.append(connection)
        self._room.release()

    async def connect(self) -> Session:
        """Open a separate connection for listening. The caller closes it."""
        if self._late is not None:
            await self._late.run()
            self._late = None
        return await self._connect()

    async def compare_hosts(self) -> None:
        """Look for a node with a higher timeline, if the URL has several hosts.

        It may have replaced the current node.
        """
        if self._address.has_several_hosts:
            (await self._connect(lowest=0)).terminate()

    async def close(self) -> None:
        self._is_closed = True
        self._followers.clear()
        await asyncio.gather(*self._leaving)
        for connection in self._idle:
            await _ended(connection, 5)
        self._idle.clear()
        # The loop closes sockets in its next iteration. A loop that ends before leaves them to the garbage collector.
        await asyncio.sleep(0)


async def _fetch_both(
    session: Session,
    query: LiteralString,
    arguments: Sequence[object],
    then: LiteralString,
    given: Sequence[object],
) -> list[asyncpg.Record]:
    """Run a statement, and in the same transaction another one if there are rows. Return the rows."""
    async with session.transaction():
        rows: list[asyncpg.Record] = await session.fetch(query, *arguments)
        if rows:
            await session.fetch(then, *given)
    return rows


async def _ended(connection: asyncpg.Connection, seconds: float) -> None:
    """Close the connection, or terminate it if the server does not respond."""
    try:
        await connection.close(timeout=seconds)
    except (*LOST, asyncpg.PostgresError):
        connection.terminate()
