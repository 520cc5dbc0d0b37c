"""Ranges for segments on PostgreSQL end where a day ends in UTC. The store in memory has its test in tests/unit."""

from __future__ import annotations

from datetime import timedelta

import asyncpg

from lakelog.storage.postgres import migrate, open_store
from lakelog.storage.store import PartitionStore
from tests.contract.test_cold import ranges, segment
from tests.contract.values import appended, create_one, plain

DAY = timedelta(days=1)


async def test_no_range_crosses_midnight(database: str) -> None:
    await migrate(database)
    store = await open_store(database)
    admin = await asyncpg.connect(database)
    try:
        pid = await create_one(store)
        await appended(store, plain(pid, 3, 3))
        await store.roll()
        await appended(store, plain(pid, 3, 3, 3))
        await appended(store, plain(pid, 3))
        # The first four batches move to the last second of a day and the first second of the next one.
        for end, at in ((3, "22:00:00"), (6, "23:59:59"), (9, "23:59:59.999999"), (12, "24:00:00")):
            await moved(admin, pid, end, at)
        today = [(12, 18, 32)]
        assert await ranges(store, pid, 1000) == [(0, 9, 48), (9, 12, 16), *today]
        assert await ranges(store, pid, 32) == [(0, 6, 32), (6, 9, 16), (9, 12, 16), *today]
        # Messages of a past day are complete, however few and young they are.
        assert await ranges(store, pid, 1000, min_bytes=1000, min_age=100 * DAY) == [(0, 9, 48), (9, 12, 16)]
        await refill(store, pid)
    finally:
        await admin.close()
        await store.close()


async def refill(store: PartitionStore, pid: int) -> None:
    """Check that a gap before a segment is filled in parts, one for each day."""
    made = [await segment(store, pid, *ends) for ends in ((0, 3), (3, 15))]
    await store.cold.register([(pid, each) for each in made])
    await store.cold.unregister([(pid, made[0])])
    assert await ranges(store, pid, 1000) == [(0, 3, 16)]
    await store.cold.unregister([(pid, made[1])])
    assert await ranges(store, pid, 1000, min_bytes=1000, min_age=100 * DAY) == [(0, 9, 48), (9, 12, 16)]


async def moved(admin: asyncpg.Connection, pid: int, end: int, at: str) -> None:
    """Set the time of the batch that ends there to this time, some days ago."""
    hours, minutes, seconds = at.split(":")
    time = timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds)) - 3 * DAY
    for (table,) in await admin.fetch("select 'hot_' || roll from lakelog.roll"):
        await admin.execute(
            f"update lakelog.{table} set appended_at = date_trunc('day', now(), 'UTC') + $3::interval "
            "where pid = $1 and end_offset = $2",
            pid,
            end,
            time,
        )
