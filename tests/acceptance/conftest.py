"""Fixtures of the acceptance suites."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.acceptance import engines
from tests.acceptance.client_kit import TRANSPORTS, ThreadServer
from tests.acceptance.documents import lake as lake
from tests.kit.postgres import Cluster
from tests.kit.size import Size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the sync forms of the tests of consumers, replays and stories over HTTP only, except at full size.

    Over the other transports, the sync form runs the same code as the async one, which is tested over each.
    """
    if Size(config.getoption("--size")) is Size.FULL:
        return
    left_out = [each for each in items if _is_sync_consumer(each)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [each for each in items if not _is_sync_consumer(each)]


def _is_sync_consumer(item: pytest.Item) -> bool:
    return (
        item.path.stem.startswith(("test_client_sync_consumer", "test_client_sync_replay", "test_client_sync_stories"))
        and "[http]" not in item.name
    )


@pytest.fixture
def http_server() -> Iterator[ThreadServer]:
    with ThreadServer() as server:
        yield server


@pytest.fixture(scope="module")
def spark_server(spark: SparkSession) -> Iterator[ThreadServer]:
    """Yield a server that is named in the configuration of the shared session."""
    with ThreadServer() as server:
        spark.conf.set("spark.lakelog.url", server.url)
        yield server


@pytest.fixture(params=TRANSPORTS)
def url(request: pytest.FixtureRequest) -> str:
    """Yield the URL of an empty installation, for each transport."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}"
    if request.param == "http":
        server: ThreadServer = request.getfixturevalue("http_server")
        return server.url
    database: str = request.getfixturevalue("migrated_database")
    return database


@pytest.fixture(scope="session")
def migrated_template(cluster: Cluster) -> str:
    """Return the name of a database with our schema, to copy: migrating one for each test takes longer."""
    from lakelog.storage.postgres import migrate

    url = cluster.create_database()
    asyncio.run(migrate(url))
    return url.rpartition("/")[2]


@pytest.fixture
def migrated_database(cluster: Cluster, migrated_template: str) -> Iterator[str]:
    """Yield the URL of a new database with our schema."""
    url = cluster.create_database(template=migrated_template)
    yield url
    cluster.drop_database(url)


@pytest.fixture(scope="session", params=engines.NAMES)
def log(request: pytest.FixtureRequest) -> engines.Log:
    """Yield the log on each kind of storage, shared by all tests that request it."""
    return engines.open_log(request)
