"""Ranges for segments end where a day ends in UTC; tests/integration has the test of PostgreSQL."""

from __future__ import annotations

from datetime import timedelta

from tests.contract.test_cold import ranges
from tests.contract.values import appended, create_one, plain
from tests.unit.engine.support import Clock, WatchedStore


async def test_no_range_crosses_midnight() -> None:
    clock = Clock()
    store = WatchedStore(clock)
    pid = await create_one(store)
    for hours in (22, 1.9, 0.1, 24):
        clock.pass_by(hours=hours)
        await appended(store, plain(pid, 3))
    assert await ranges(store, pid, 1000) == [(0, 6, 32), (6, 9, 16), (9, 12, 16)]
    assert await ranges(store, pid, 16) == [(0, 3, 16), (3, 6, 16), (6, 9, 16), (9, 12, 16)]
    # Messages of a past day are complete, however few and young they are.
    young = timedelta(days=100)
    assert await ranges(store, pid, 1000, min_bytes=1000, min_age=young) == [(0, 6, 32), (6, 9, 16)]
