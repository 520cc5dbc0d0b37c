"""Migrations: plain SQL files, applied in order, each in its own transaction.

An advisory lock makes concurrent runs safe. Servers of the previous version may keep running: a migration only adds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

import asyncpg

from lakelog.errors import ConfigurationError
from lakelog.model.levels import SUPPORTED
from lakelog.storage.postgres.address import address_of
from lakelog.storage.postgres.connecting import open_session

_LOCK = 5497628094138482687
_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")

_TABLE = """
create schema if not exists lakelog;
create table if not exists lakelog.migration (
    version integer primary key,
    name text not null,
    applied_at timestamptz not null default clock_timestamp()
);
"""


def migrations() -> list[tuple[int, str, str]]:
    """Return the version, name and text of each migration, in order."""
    found = []
    for file in files(__package__).joinpath("migrations").iterdir():
        if match := _FILE.match(file.name):
            found.append((int(match[1]), match[2], file.read_text()))
    return sorted(found)


def newest_version() -> int:
    return migrations()[-1][0]


async def migrate(url: str, cells: Mapping[str, str] | None = None) -> list[str]:
    """Migrate the databases of the catalog and the additional cells, and return the names of the applied migrations.

    A cell gets its number from the catalog. The number is recorded in its database, which can serve no other
    installation.
    """
    catalog = await connect_to_migrate(url)
    try:
        applied = await _applied(catalog)
        for name, cell_url in sorted((cells or {}).items()):
            cell = await connect_to_migrate(cell_url)
            try:
                applied += [f"{step} (cell {name})" for step in await _applied(cell)]
                await _attach(catalog, cell, name)
            finally:
                await cell.close()
        return applied
    finally:
        await catalog.close()


async def _attach(catalog: asyncpg.Connection, cell: asyncpg.Connection, name: str) -> None:
    await catalog.execute("insert into lakelog.cell (name) values ($1) on conflict do nothing", name)
    number = await catalog.fetchval("select cell from lakelog.cell where name = $1", name)
    (installed,) = await catalog.fetch("select installation_id, feature_level from lakelog.installation")
    attached = await cell.fetchval(
        "update lakelog.installation set installation_id = $1, cell = $2, feature_level = $3 "
        "where (installation_id = $1 and cell = $2) "
        "or (cell = 0 and not exists (select from lakelog.partition) and not exists (select from lakelog.topic)) "
        "returning true",
        installed["installation_id"],
        number,
        installed["feature_level"],
    )
    if not attached:
        raise ConfigurationError(
            f"The database of cell '{name}' belongs to another installation or cell. Use an empty database."
        )


async def connect_to_migrate(url: str) -> asyncpg.Connection:
    """Return a connection whose statements wait at most 30 s for a lock."""
    return await open_session(url, address_of(url), {"lock_timeout": "30s", "client_min_messages": "warning"})


async def _applied(connection: asyncpg.Connection) -> list[str]:
    try:
        return await _apply(connection)
    except asyncpg.PostgresError as error:
        raise ConfigurationError(f"The migration failed and was rolled back: {error}") from error


async def _apply(connection: asyncpg.Connection) -> list[str]:
    await connection.execute("select pg_advisory_lock($1)", _LOCK)
    await connection.execute(_TABLE)
    done = {row["version"] for row in await connection.fetch("select version from lakelog.migration")}
    applied = []
    for version, name, text in migrations():
        if version in done:
            continue
        async with connection.transaction():
            await connection.execute(text)
            await connection.execute("insert into lakelog.migration (version, name) values ($1, $2)", version, name)
        applied.append(f"{version:04} {name}")
    if not done:
        # No older server can use a new database.
        await connection.execute("update lakelog.installation set feature_level = $1", int(SUPPORTED))
    return applied
