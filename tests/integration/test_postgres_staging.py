"""Staged messages on PostgreSQL: the service's rights, hot tables that stay, payloads that are written once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg

from lakelog.storage.postgres import migrate, open_catalog, open_store
from lakelog.storage.staging import PromoteStatus, StagedBatch
from tests.contract.test_staging import decided, new_topic, staged
from tests.contract.values import batch, create_one, head_of, plain, read_all
from tests.kit.postgres import Cluster


async def test_a_member_of_the_services_role_can_do_every_verb(cluster: Cluster, database: str) -> None:
    await migrate(database)
    admin = await asyncpg.connect(database)
    await admin.execute("drop role if exists staging_login")
    await admin.execute("create role staging_login login in role lakelog_service")
    url = cluster.url(await admin.fetchval("select current_database()"), "staging_login")
    store, catalog = await open_store(url), await open_catalog(url)
    try:
        topic = await new_topic(catalog)
        pid = topic.pid(0)
        await store.heads_create([pid], 0)
        await store.staging.stage([staged(pid, 0)])
        await store.roll()
        await store.staging.stage([staged(pid, 1), staged(pid, 0, attempt="loser")])
        assert await catalog.writes.decide(decided(topic, "w", "a"), 0) is not None
        assert await store.staging.staged_pids(topic.incarnation, "w") == [pid]
        assert await store.staging.staged_count([pid], "w", ["a"]) == 4
        assert len(await store.staging.staged_writes(timedelta(0))) == 1
        assert (await store.staging.promote(pid, "w", ["a"])).status is PromoteStatus.DONE
        await catalog.writes.finish(topic.incarnation, "w")
        await catalog.writes.abandon(topic.incarnation, "other")
        await catalog.writes.trim(timedelta(0))
        await store.staging.promoted_trim(timedelta(0))
        assert [each.base for each in await read_all(store, pid)] == [0, 2]
    finally:
        await store.close()
        await catalog.close()
        await admin.execute("drop role staging_login")
        await admin.close()


async def test_a_hot_table_stays_as_long_as_anything_is_staged_in_it(database: str) -> None:
    await migrate(database)
    store = await open_store(database)
    try:
        pid = await create_one(store)
        await store.staging.stage([staged(pid)])
        first = (await store.roll_active()).roll
        await store.roll()
        assert await store.rolls_drop() == []
        await store.staging.promote(pid, "w", ["a"])
        assert await store.rolls_drop() == [first]
        assert len(await read_all(store, pid)) == 1
    finally:
        await store.close()


async def test_promoting_within_a_roll_does_not_write_the_payload_again(database: str) -> None:
    await migrate(database)
    store = await open_store(database)
    admin = await asyncpg.connect(database)
    try:
        pid = await create_one(store)
        batches = [
            StagedBatch(pid=pid, write_id="w", attempt="a", number=number, epoch=0, payload=batch(10, 1 << 20))
            for number in range(8)
        ]
        await store.staging.stage(batches)
        before = await admin.fetchval("select pg_current_wal_insert_lsn()")
        await store.staging.promote(pid, "w", ["a"])
        written = await admin.fetchval("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)", before)
        assert written < 1 << 20, f"{written} bytes of log for 8 MiB of payload"
        assert [each.payload for each in await read_all(store, pid)] == [each.payload.data for each in batches]
    finally:
        await admin.close()
        await store.close()


async def test_promotions_of_many_writes_at_once_do_not_wait_for_each_other_for_ever(database: str) -> None:
    await migrate(database)
    stores = [await open_store(database) for _ in range(2)]
    try:
        pids = [await create_one(stores[0]) for _ in range(6)]
        for number, pid in enumerate(pids):
            await stores[0].staging.stage([staged(pid, write=f"w{n}") for n in range(6)])
            await stores[number % 2].append([plain(pid, 1)])
        await asyncio.gather(
            *(
                stores[(n + index) % 2].staging.promote(pid, f"w{n}", ["a"])
                for n in range(6)
                for index, pid in enumerate(reversed(pids) if n % 2 else pids)
            )
        )
        assert [(await head_of(stores[1], pid)).next_offset for pid in pids] == [13] * 6
    finally:
        for store in stores:
            await store.close()
