"""Migrations: plain SQL files, applied in order, each in a transaction of its own.

Safe to run twice at once (an advisory lock), and while servers of the version before run: a migration only adds.
"""

from __future__ import annotations

import re
from importlib.resources import files

import asyncpg

from lakelog.errors import ConfigurationError, Unavailable

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
    """Version, name and text of each, in order."""
    found = []
    for file in files(__package__).joinpath("migrations").iterdir():
        if match := _FILE.match(file.name):
            found.append((int(match[1]), match[2], file.read_text()))
    return sorted(found)


def newest_version() -> int:
    return migrations()[-1][0]


async def migrate(url: str) -> list[str]:
    """Brings the database up to this version; the names of what was applied."""
    try:
        connection = await asyncpg.connect(
            url, timeout=10, server_settings={"lock_timeout": "30s", "client_min_messages": "warning"}
        )
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise Unavailable(
            f"PostgreSQL cannot be reached for the migration: {error or type(error).__name__}."
        ) from error
    try:
        return await _apply(connection)
    except asyncpg.PostgresError as error:
        hint = f" {error.hint}." if error.hint else ""
        raise ConfigurationError(f"The migration was refused and nothing of it applied: {error}.{hint}") from error
    finally:
        await connection.close()


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
    return applied
