"""The history of groups on PostgreSQL at its full size: 500 groups with samples for 400 days."""

from __future__ import annotations

import time

import asyncpg
import pytest

from lakelog.engine.history.samples import SampleBody, pack
from lakelog.storage.history import Resolution, Sample
from lakelog.storage.postgres import migrate, open_catalog
from tests.kit.size import Size

GROUPS = 500
NOW = 29_000_040
BODY = SampleBody(
    finished=1_200_000, lag=900, oldest_seconds=95, leased=64, waiting=3, members=4, dead_letters=300,
    lags=(200, 300, 90, 310),
)  # fmt: skip


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
        for table, every, days in (("sample_minute", 1, 2), ("sample_ten_minutes", 10, 30), ("sample_hour", 60, 400)):
            width = await admin.fetchval("select (lakelog.history_lengths($1)).width", table)
            for minute in range(NOW - days * 1440, NOW, width):
                await admin.execute("select lakelog.history_extend($1, $2)", table, minute)
            # In the order of time, as servers write them.
            await admin.execute(
                f"insert into lakelog.{table} select s.series, m, $1 "
                f"from generate_series({NOW - days * 1440}, {NOW - every}, {every}) m, lakelog.sample_series s "
                "order by m, s.series on conflict do nothing",
                pack(BODY),
                timeout=600,
            )
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
