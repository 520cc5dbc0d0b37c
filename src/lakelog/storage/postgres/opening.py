"""Opens the catalog and the cells of an installation, and makes sure that each database is the one it is taken for."""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.storage.postgres.catalog import PostgresCatalog
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.partitions import PostgresStore
from lakelog.storage.store import DEFAULT_CELL, Catalog, PartitionStore


async def open_catalog(url: str) -> Catalog:
    return PostgresCatalog(await Database.open(url, size=4))


async def open_store(url: str) -> PartitionStore:
    return PostgresStore(await Database.open(url))


async def open_cells(url: str, others: Mapping[str, str]) -> dict[int, PartitionStore]:
    """The default cell, which shares the catalog's database, and the others by their names' order."""
    stores = {DEFAULT_CELL: await open_store(url)}
    for number, name in enumerate(sorted(others), start=1):
        stores[number] = await open_store(others[name])
    return stores
