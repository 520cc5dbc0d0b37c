"""Feature levels on PostgreSQL: new databases, raised levels, and versions that are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from lakelog.errors import ConfigurationError
from lakelog.model.levels import SUPPORTED
from lakelog.model.topic import TopicSettings
from lakelog.storage.groups import ServerInfo
from lakelog.storage.postgres import migrate, open_catalog, open_stores, raise_level
from tests.kit.postgres import Cluster

ENTRY: list[Any] = [[1], [1 << 16], [1], [True], [b"state"], [0], [1 << 60]]
WITHOUT_NONCES = "select statuses from lakelog.journals_commit($1, $2, $3, $4, $5, $6, $7)"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def level_of(url: str) -> int:
    async with connected(url) as connection:
        return int(await connection.fetchval("select feature_level from lakelog.installation"))


async def set_level(level: int, *urls: str) -> None:
    for url in urls:
        async with connected(url) as connection:
            await connection.execute("update lakelog.installation set feature_level = $1", level)


async def test_a_new_installation_has_the_newest_level_and_an_old_one_keeps_its_own(database: str) -> None:
    await migrate(database)
    assert await level_of(database) == SUPPORTED
    await set_level(1, database)
    await migrate(database)
    assert await level_of(database) == 1


async def test_the_level_is_raised_in_all_databases_unless_a_live_server_is_older(
    cluster: Cluster, database: str
) -> None:
    second = cluster.create_database()
    cells = {"second": second}
    await migrate(database, cells)
    await set_level(1, database, second)
    old = ServerInfo(server_id="old", address="10.0.0.7:8080", level=1)
    catalog = await open_catalog(database)
    try:
        assert catalog.level == 1
        assert (await catalog.groups.server_seen(old, memory_seconds=6)).level == 1
        with pytest.raises(ConfigurationError, match=r"10\.0\.0\.7:8080 \(level 1\)"):
            await raise_level(database, cells)
        assert [await level_of(url) for url in (database, second)] == [1, 1]
        await catalog.groups.server_gone("old")
        assert await raise_level(database, cells) == (1, SUPPORTED)
        assert [await level_of(url) for url in (database, second)] == [SUPPORTED, SUPPORTED]
        assert await raise_level(database, cells) == (SUPPORTED, SUPPORTED)
        new = ServerInfo(server_id="new", address="10.0.0.8:8080")
        assert (await catalog.groups.server_seen(new, memory_seconds=6)).level == catalog.level == SUPPORTED
    finally:
        await catalog.close()
        cluster.drop_database(second)


async def test_a_new_cell_gets_the_level_of_the_installation(cluster: Cluster, database: str) -> None:
    await migrate(database)
    await set_level(1, database)
    second = cluster.create_database()
    try:
        await migrate(database, {"second": second})
        assert await level_of(second) == 1
    finally:
        cluster.drop_database(second)


async def test_an_installation_with_a_higher_level_is_refused(database: str) -> None:
    await migrate(database)
    await set_level(SUPPORTED + 1, database)
    with pytest.raises(ConfigurationError, match=f"feature level {SUPPORTED + 1}"):
        await open_stores(database, {})
    with pytest.raises(ConfigurationError, match=f"feature level {SUPPORTED + 1}"):
        await raise_level(database)


async def test_a_version_without_nonces_is_refused_from_the_second_level_on(database: str) -> None:
    """It reports the error as temporary, so that its callers go to another server."""
    await migrate(database)
    async with connected(database) as connection:
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError, match=f"feature level {SUPPORTED}"):
            await connection.fetchval(WITHOUT_NONCES, *ENTRY)
        await connection.execute("update lakelog.installation set feature_level = 1")
        assert await connection.fetchval(WITHOUT_NONCES, *ENTRY) == [0]
        assert await connection.fetchval("select nonce from lakelog.journal") == 0


async def test_settings_written_by_a_version_without_topic_versions_raise_the_version(database: str) -> None:
    await migrate(database)
    catalog = await open_catalog(database)
    try:
        scope = await catalog.scope_create("default", "default")
        topic = await catalog.topic_create(scope, "orders", TopicSettings(), [0])
        async with connected(database) as connection:
            await connection.execute("update lakelog.topic set settings = settings where epoch = $1", topic.epoch)
        found = await catalog.topic_find(scope, "orders")
        assert found is not None
        assert found.version == topic.version + 1
        altered = await catalog.topic_alter(found, found.settings, [])
        assert altered.version == found.version + 1
    finally:
        await catalog.close()
