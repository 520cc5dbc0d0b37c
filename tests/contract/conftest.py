"""Runs each test of the contract once per implementation: `pytest tests/contract -k memory` selects one of them."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.stores import Backing, MemoryBacking, PostgresBacking
from tests.kit.postgres import Cluster

NAMES = ("memory", "postgres")


@pytest.fixture(scope="session")
def postgres_backing(cluster: Cluster) -> PostgresBacking:
    from lakelog.storage.postgres import migrate

    url = cluster.create_database()
    asyncio.run(migrate(url))
    return PostgresBacking(cluster, migrated=url)


@pytest.fixture(scope="session", params=NAMES)
def backing(request: pytest.FixtureRequest) -> Backing:
    if request.param == "memory":
        return MemoryBacking()
    found: PostgresBacking = request.getfixturevalue("postgres_backing")
    return found
