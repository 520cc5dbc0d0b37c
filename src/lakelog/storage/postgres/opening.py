"""Opens the catalog and the cells of an installation, and checks that each database is the expected one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from lakelog.errors import ConfigurationError, Unavailable
from lakelog.model.levels import SUPPORTED, unsupported
from lakelog.storage.postgres.catalog import PostgresCatalog
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.connection_room import CONNECTIONS, POOL_SIZE
from lakelog.storage.postgres.partitions import LOCKED_PARTITIONS, PostgresStore
from lakelog.storage.postgres.queries import load
from lakelog.storage.store import DEFAULT_CELL, Catalog, PartitionStore

_SQL = load("catalog")
_PARTITIONS = load("partitions")
OPEN_SECONDS = 2.0
"""How long a start waits for a cell that does not respond."""
LOCK_SLOTS = 4 * LOCKED_PARTITIONS
"""Minimum number of lock slots: four statements of the largest size at the same time."""


async def open_catalog(url: str) -> Catalog:
    database = await Database.open(url, size=4)
    try:
        return PostgresCatalog(database, await _level(database))
    except BaseException:
        await database.close()
        raise


async def open_stores(
    url: str, cells: Mapping[str, str], *, connections: int = CONNECTIONS
) -> tuple[Catalog, dict[int, PartitionStore]]:
    """Open the catalog and all cells.

    Args:
        url: The database of the catalog and the default cell, which share their connections.
        cells: The databases of the other cells, by name.
        connections: The largest number of connections to each database, at least 2. One of them listens for
            announcements.
    """
    databases = await _open_databases(url, cells, connections - 1)
    try:
        catalog = PostgresCatalog(databases[DEFAULT_CELL], await _level(databases[DEFAULT_CELL]))
    except BaseException:
        for database in databases.values():
            await database.close()
        raise
    return catalog, {cell: PostgresStore(database) for cell, database in databases.items()}


async def open_store(url: str) -> PartitionStore:
    databases: list[Database] = []
    try:
        return PostgresStore(await _opened(url, databases))
    except BaseException:
        for database in databases:
            await database.close()
        raise


async def open_cells(url: str, others: Mapping[str, str] | None = None) -> dict[int, PartitionStore]:
    """Open all cells, by number. The default cell shares the database of the catalog.

    Another cell that cannot be reached is opened when it is first used. Until then its calls raise `Unavailable`.
    """
    databases = await _open_databases(url, others or {}, POOL_SIZE)
    return {cell: PostgresStore(database) for cell, database in databases.items()}


async def _open_databases(url: str, others: Mapping[str, str], size: int) -> dict[int, Database]:
    databases: list[Database] = []
    try:
        catalog = await _opened(url, databases, size)
        installation, _ = await _identity(catalog)
        found = {DEFAULT_CELL: catalog}
        numbers = await _cell_numbers(catalog)
        if missing := sorted(set(numbers) ^ set(others)):
            raise ConfigurationError(
                f"These cells are configured but not in the catalog, or the reverse: {missing}. "
                "Configure all cells, and run `lakelog migrate` after adding one."
            )
        for name, cell_url in others.items():
            databases.append(await _open_or_later(name, cell_url, (installation, numbers[name]), size))
            found[numbers[name]] = databases[-1]
        return found
    except BaseException:
        for database in databases:
            await database.close()
        raise


async def _open_or_later(name: str, url: str, identity: tuple[object, int], size: int) -> Database:
    """Open a cell, or return a database that is opened when it is first used."""
    open_cell = partial(_open_cell, name, url, identity, size)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            return await open_cell()
    except Unavailable as error:
        return Database.open_later(url, error, partial(_check, open_cell), size=size)
    except TimeoutError as error:
        silent = Unavailable(f"The database of cell '{name}' did not respond within {OPEN_SECONDS:g} s.")
        silent.__cause__ = error
        return Database.open_later(url, silent, partial(_check, open_cell), size=size)


async def _open_cell(name: str, url: str, identity: tuple[object, int], size: int) -> Database:
    opened: list[Database] = []
    try:
        database = await _opened(url, opened, size)
        if await _identity(database) != identity:
            raise ConfigurationError(f"The database of cell '{name}' belongs to another cell. Check its URL.")
    except BaseException:
        for each in opened:
            await each.close()
        raise
    return database


async def _check(open_cell: Callable[[], Awaitable[Database]]) -> None:
    await (await open_cell()).close()


async def _opened(url: str, opened: list[Database], size: int = POOL_SIZE) -> Database:
    database = await Database.open(url, size=size)
    opened.append(database)
    slots = (await database.read(_PARTITIONS["lock_slots_read"]))[0][0]
    if slots < LOCK_SLOTS:
        raise ConfigurationError(
            f"PostgreSQL at {database.address} has {slots} lock slots; Lakelog needs at least {LOCK_SLOTS}. "
            "Increase max_locks_per_transaction (64 by default) or max_connections, and restart PostgreSQL."
        )
    return database


async def _identity(database: Database) -> tuple[object, int]:
    (row,) = await database.read(_SQL["installation_read"])
    return row["installation_id"], row["cell"]


async def _level(database: Database) -> int:
    (row,) = await database.read(_SQL["installation_read"])
    level: int = row["feature_level"]
    if level > SUPPORTED:
        raise ConfigurationError(unsupported(level))
    return level


async def _cell_numbers(database: Database) -> dict[str, int]:
    return {row["name"]: row["cell"] for row in await database.read(_SQL["cell_list"])}
