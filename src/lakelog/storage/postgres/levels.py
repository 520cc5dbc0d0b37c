"""Raises the feature level of an installation, when all live servers support it."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from lakelog.errors import ConfigurationError
from lakelog.model.levels import SUPPORTED, unsupported
from lakelog.storage.postgres.migrate import connect_to_migrate
from lakelog.storage.postgres.queries import load

_SQL = load("levels")


async def raise_level(url: str, cells: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Raise the level of all databases to the one of this version, and return the levels before and after.

    Raise `ConfigurationError` if a live server does not support it. A server is live for a minute after it was last
    seen, because a suspended one may return.
    """
    urls = [url, *(cells or {}).values()]
    before = 0
    # The catalog is first: a server that starts now must find the new level there.
    for each in urls:
        connection = await connect_to_migrate(each)
        try:
            async with connection.transaction():
                found = await _raise(connection)
                before = before or found
        finally:
            await connection.close()
    return before, int(SUPPORTED)


async def _raise(connection: asyncpg.Connection) -> int:
    before: int = await connection.fetchval(_SQL["level_lock"])
    if before > SUPPORTED:
        raise ConfigurationError(unsupported(before))
    older = await connection.fetch(_SQL["server_list_below"], int(SUPPORTED))
    if older:
        named = ", ".join(f"{row['address']} (level {row['level']})" for row in older)
        raise ConfigurationError(
            f"These servers do not support feature level {SUPPORTED:d}: {named}. "
            "Upgrade or stop them, and run the command again after a minute."
        )
    await connection.execute(_SQL["level_write"], int(SUPPORTED))
    return before
