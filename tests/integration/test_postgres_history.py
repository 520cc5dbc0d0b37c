"""The history of groups on PostgreSQL at its full size: 500 groups with samples for 400 days."""

from __future__ import annotations

import time

import asyncpg
import pytest

from lakelog.engine.history.samples import pack
from lakelog.storage.history import Resolution, Sample
from lakelog.storage.postgres import migrate, open_catalog
from tests.kit.console_bulk import BODY, write_samples
from tests.kit.size import Size

GROUPS = 500
NOW = 29_000_040


@pytest.mark.timeout(900)
async def test_samples_of_500_groups_need_at_most_a_gigabyte(database: str, size: Size) -> None:
    if size is not Size.FULL:
        pytest.skip("writes 9 million rows")
    await migrate(database)
    catalog = await open_catalog(database)
    admin = await asyncpg.connect(database)
    try:
        samples = [Sample(group_id=n, incarnation=n, body=pack(BODY)) for n in range(1, GROUPS + 1)]
        began = time.perf_counter()
        assert await catalog.samples.samples_write(NOW, samples) == GROUPS
        written = time.perf_counter() - began
        await write_samples(admin, NOW, (2, 30, 400))
        total = await admin.fetchval(
            "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c "
            "where c.relnamespace = 'lakelog'::regnamespace and c.relkind = 'r' and c.relname like 'sample%'"
        )
        reads = {}
        for resolution, days, every in ((Resolution.MINUTE, 1, 1), (Resolution.HOUR, 399, 360)):
            began = time.perf_counter()
            first = NOW - days * 1440
            found = await catalog.samples.samples_read([250], [250], resolution, first, NOW, every)
            reads[resolution.name] = (len(found), round((time.perf_counter() - began) * 1000, 1))
        print(f"\nsamples: {total / 1e6:.0f} MB; written in {written * 1000:.0f} ms; reads (rows, ms): {reads}")
        assert total <= 1e9
    finally:
        await admin.close()
        await catalog.close()
