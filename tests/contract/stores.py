"""The implementations that the contract suite tests. A new one is a class here and a name in `conftest.NAMES`.

Tests share one database per implementation. They use new pids and scopes (see `values`), and `empty_store_pair` only if
data of other tests would interfere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Protocol

import asyncpg

from lakelog.storage.memory import MemoryCatalog, MemoryStore, utcnow
from lakelog.storage.store import Catalog, PartitionStore
from tests.kit.postgres import Cluster

StorePair = tuple[PartitionStore, PartitionStore]
CatalogPair = tuple[Catalog, Catalog]
PassBy = Callable[[float], Awaitable[None]]
AgingStore = tuple[PartitionStore, PassBy]
_AGING = (
    ("journal", "at"),
    ("dead_letter", "at"),
    ("members", "at"),
    ("heartbeat", "seen_at"),
    ("key_reservation", "expires_at"),
    ("key_append", "expires_at"),
    ("producer", "at"),
    ("once_value", "accepted_at"),
    ("relayed", "relayed_at"),
    ("scheduled", "due_at"),
    ("scheduled", "scheduled_at"),
    ("scheduled", "ended_at"),
    ("period", "began_at"),
    ("period", "ended_at"),
    ("unslotted", "migrated_at"),
)


class Backing(Protocol):
    """A source of stores for a test. A pair is two handles to the same data, as two servers have them."""

    name: str

    def store(self) -> AbstractAsyncContextManager[PartitionStore]: ...

    def store_pair(self) -> AbstractAsyncContextManager[StorePair]: ...

    def empty_store_pair(self) -> AbstractAsyncContextManager[StorePair]: ...

    def aging_store(self) -> AbstractAsyncContextManager[AgingStore]:
        """Return an empty store, and a function that ages its groups, producers and idempotency keys by a number of
        seconds."""
        ...

    def catalog_pair(self) -> AbstractAsyncContextManager[CatalogPair]: ...


class MemoryBacking:
    """Each store is a new object; a pair is the same object twice."""

    name = "memory"

    @asynccontextmanager
    async def store(self) -> AsyncIterator[PartitionStore]:
        store = MemoryStore()
        yield store
        await store.close()

    @asynccontextmanager
    async def store_pair(self) -> AsyncIterator[StorePair]:
        async with self.store() as store:
            yield store, store

    empty_store_pair = store_pair

    @asynccontextmanager
    async def aging_store(self) -> AsyncIterator[AgingStore]:
        passed = timedelta(0)

        async def pass_by(seconds: float) -> None:
            nonlocal passed
            passed += timedelta(seconds=seconds)

        yield MemoryStore(lambda: utcnow() + passed), pass_by

    @asynccontextmanager
    async def catalog_pair(self) -> AsyncIterator[CatalogPair]:
        catalog = MemoryCatalog()
        yield catalog, catalog
        await catalog.close()


class PostgresBacking:
    """One migrated database for all tests, and copies of a migrated one for tests that need an empty database."""

    name = "postgres"

    def __init__(self, cluster: Cluster, *, migrated: str) -> None:
        self._cluster = cluster
        self._template = migrated.rpartition("/")[2]
        self._url = cluster.create_database(template=self._template)

    @asynccontextmanager
    async def store(self, url: str | None = None) -> AsyncIterator[PartitionStore]:
        from lakelog.storage.postgres import open_store

        store = await open_store(url or self._url)
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def store_pair(self, url: str | None = None) -> AsyncIterator[StorePair]:
        async with self.store(url) as one, self.store(url) as other:
            yield one, other

    @asynccontextmanager
    async def empty_store_pair(self) -> AsyncIterator[StorePair]:
        url = self._cluster.create_database(template=self._template)
        try:
            async with self.store_pair(url) as pair:
                yield pair
        finally:
            self._cluster.drop_database(url)

    @asynccontextmanager
    async def aging_store(self) -> AsyncIterator[AgingStore]:
        url = self._cluster.create_database(template=self._template)

        async def pass_by(seconds: float) -> None:
            admin = await asyncpg.connect(url)
            for table, column in _AGING:
                await admin.execute(
                    f"update lakelog.{table} set {column} = {column} - $1::interval", timedelta(seconds=seconds)
                )
            await admin.close()

        try:
            async with self.store(url) as store:
                yield store, pass_by
        finally:
            self._cluster.drop_database(url)

    @asynccontextmanager
    async def catalog_pair(self) -> AsyncIterator[CatalogPair]:
        from lakelog.storage.postgres import open_catalog

        one = await open_catalog(self._url)
        try:
            other = await open_catalog(self._url)
            try:
                yield one, other
            finally:
                await other.close()
        finally:
            await one.close()
