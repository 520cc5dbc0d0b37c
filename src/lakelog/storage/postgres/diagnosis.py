"""Measures the values of one database that `engine.diagnosis` checks. It changes nothing and judges nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import asyncpg

from lakelog.errors import LakelogError
from lakelog.model.diagnosis import (
    DatabaseFacts,
    OpenTransaction,
    PreparedTransaction,
    ReplicationSlot,
    SchemaFacts,
    Setting,
    Standby,
)
from lakelog.model.levels import SUPPORTED
from lakelog.storage.postgres.address import DatabaseAddress, address_of
from lakelog.storage.postgres.connecting import LOST, open_session, translated
from lakelog.storage.postgres.migrate import newest_version
from lakelog.storage.postgres.opening import LOCK_SLOTS
from lakelog.storage.postgres.queries import load

NEEDED_LOCK_SLOTS = LOCK_SLOTS
_SQL = load("doctor")
_CELLS = load("catalog")
_LEVELS = load("levels")
_MOST = 20
"""The largest number of transactions, slots and standbys to read."""

T = TypeVar("T")
Now = Callable[[], datetime]


def newest_migration() -> int:
    """Return the newest migration of this version."""
    return newest_version()


async def measure_database(url: str, *, now: Now = lambda: datetime.now(UTC)) -> DatabaseFacts:
    """Return the measured values of a database, or raise an error if it cannot be reached.

    Args:
        url: The URL of the database.
        now: Returns the time of this machine.
    """
    address = address_of(url)
    settings = {"application_name": "lakelog doctor", "timezone": "UTC", "statement_timeout": "10s"}
    connection = await open_session(url, address, settings, command_timeout=15.0)
    try:
        return await _measure(connection, address, now)
    except LakelogError:
        raise
    except (*LOST, asyncpg.PostgresError) as error:
        raise translated(address, error) from error
    finally:
        connection.terminate()


async def _measure(connection: asyncpg.Connection, address: DatabaseAddress, now: Now) -> DatabaseFacts:
    before = now()
    clock = await connection.fetchval(_SQL["clock_read"])
    after = now()
    (overview,) = await connection.fetch(_SQL["overview_read"])
    (oldest,) = await connection.fetch(_SQL["xid_age_read"])
    return DatabaseFacts(
        **dict(overview),
        clock=clock,
        clock_before=before,
        clock_after=after,
        settings={
            row["name"]: Setting(value=row["reset_val"], source=row["source"], is_pending=row["pending_restart"])
            for row in await connection.fetch(_SQL["settings_read"])
        },
        transactions=await _list(connection, "transaction_list", OpenTransaction),
        prepared=await _list(connection, "prepared_list", PreparedTransaction),
        slots=await _list(connection, "slot_list", ReplicationSlot),
        standbys=await _list(connection, "standby_list", Standby),
        xid_age=oldest["age"],
        xid_database=oldest["database"],
        outbox=await _list(connection, "outbox_transaction_list", OpenTransaction) if overview["has_outbox"] else (),
        schema=await _schema(connection),
        client_options=_client_options(address),
    )


async def _list(connection: asyncpg.Connection, query: str, kind: Callable[..., T]) -> tuple[T, ...]:
    return tuple(kind(**dict(row)) for row in await connection.fetch(_SQL[query], _MOST))


def _client_options(address: DatabaseAddress) -> str:
    first = address.each_host()[0]
    port = f" --port={first['port']}" if "port" in first else ""
    return f"--host={shlex.quote(str(first['host']))}{port} --username={shlex.quote(address.user)}"


async def _schema(connection: asyncpg.Connection) -> SchemaFacts | None:
    try:
        (row,) = await connection.fetch(_SQL["schema_read"])
        cells = await connection.fetch(_CELLS["cell_list"])
        older = await connection.fetch(_LEVELS["server_list_below"], int(SUPPORTED))
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.InvalidSchemaNameError):
        return None
    return SchemaFacts(
        **dict(row),
        cells={cell["name"]: cell["cell"] for cell in cells},
        older_servers={server["address"]: server["level"] for server in older},
    )
