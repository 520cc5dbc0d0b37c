"""Staged messages on PostgreSQL: the service's rights, hot tables that stay, payloads that are written once."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import asyncpg
import pytest

from lakelog.storage.compaction import RollCounts
from lakelog.storage.postgres import migrate, open_catalog, open_store
from lakelog.storage.staging import PromoteStatus, StagedBatch
from lakelog.storage.store import PartitionStore, Payload
from tests.contract.test_staging import decided, new_topic, staged
from tests.contract.values import append_one, batch, create_one, head_of, plain, read_all
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.kit.waiting import eventually_async


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
        await store.staging.stage([staged(pid, attempt="loser")])
        first = (await store.roll_active()).roll
        await store.roll()
        assert await store.rolls_drop() == []
        assert await store.rolls_count() == RollCounts(messages=1, writes=1)
        await store.staging.promote(pid, "w", ["b"])
        assert await store.rolls_drop() == [first]
        assert await store.rolls_count() == RollCounts(messages=1)
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


async def test_promoting_across_rolls_does_not_write_the_payload_again(database: str) -> None:
    await migrate(database)
    store = await open_store(database)
    admin = await asyncpg.connect(database)
    try:
        pid = await create_one(store)
        await append_one(store, plain(pid, 1))
        batches = [large(pid, number) for number in range(9)]
        for number, each in enumerate(batches):
            if number % 3 == 0:
                await store.roll()
            await store.staging.stage([each])
        await store.roll()
        before = await admin.fetchval("select pg_current_wal_insert_lsn()")
        await store.staging.promote(pid, "w", ["a"])
        written = await admin.fetchval("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)", before)
        assert written < 1 << 20, f"{written} bytes of log for 9 MiB of payload"
        await append_one(store, plain(pid, 1))
        found = await read_all(store, pid)
        assert [each.payload for each in found[1:-1]] == [each.payload.data for each in batches]
        assert [each.base for each in found[1:]] == [each.end for each in found[:-1]]
    finally:
        await admin.close()
        await store.close()


async def test_hot_tables_that_a_write_was_promoted_in_are_kept_and_dropped_like_any_other(database: str) -> None:
    await migrate(database)
    store = await open_store(database)
    try:
        pid, other = await create_one(store), await create_one(store)
        rolls = []
        for attempt in "ab":
            for number in range(2):
                # The append also tells the process which roll is active.
                await append_one(store, plain(other, 1))
                rolls.append((await store.roll_active()).roll)
                await append_one(store, plain(pid, 1))
                await store.staging.stage([staged(pid, number, attempt=attempt)])
                await store.roll()
        # The attempts interleave the hot tables: each has batches of this partition in two places.
        await store.staging.promote(pid, "w", ["b", "a"])
        await append_one(store, plain(pid, 1))
        before = [(each.base, each.payload) for each in await read_all(store, pid)]
        assert await store.rolls_drop() == []
        while (await store.rolls_compact(table_bytes=1 << 30)).bytes:
            pass
        assert [(each.base, each.payload) for each in await read_all(store, pid)] == before
        at = (await read_all(store, pid))[4].appended_at
        assert await store.offset_at_time(pid, at) == before[4][0]
        await store.log_start_raise([(each, (await head_of(store, each)).next_offset) for each in (pid, other)])
        assert set(rolls) <= set(await store.rolls_drop())
    finally:
        await store.close()


@pytest.mark.timeout(1800)
async def test_a_write_of_any_size_delays_publishers_for_less_than_two_seconds(database: str, size: Size) -> None:
    """An append takes the same lock as the promotion, so its longest wait shows how long that was held."""
    await migrate(database)
    store, publisher = await open_store(database), await open_store(database)
    done = asyncio.Event()

    async def has_begun() -> bool:
        return (await head_of(store, pid)).next_offset > 0

    try:
        pid = await create_one(store)
        megabytes, rolls = size.pick(ci=32, full=5 << 10), 4
        payload = batch(100, 1 << 20)
        for start in range(0, megabytes, 4):
            if start % (megabytes // rolls) == 0:
                await store.roll()
            winners = [large(pid, number, payload=payload) for number in range(start, start + 4)]
            await store.staging.stage([*winners, large(pid, start, "loser", payload)])
        appending = asyncio.create_task(longest_append(publisher, pid, done))
        await eventually_async(has_begun)
        began = time.perf_counter()
        promoted = await store.staging.promote(pid, "w", ["a"])
        took = time.perf_counter() - began
        done.set()
        longest = await appending
        print(f"{megabytes} MiB in {rolls} rolls: promoted in {took:.2f} s, longest append {longest:.2f} s")
        assert promoted.count == 100 * megabytes
        assert await store.staging.staged_pids(pid >> 16, "w") == []
        # At ci size, the longest append is that of a busy machine.
        assert longest < size.pick(ci=20.0, full=2.0)
        head = await head_of(store, pid)
        assert head.next_offset > promoted.count
        last = await store.read(pid, (promoted.base or 0) + promoted.count - 1, max_messages=1, max_bytes=1)
        assert last is not None and last.batches[0].payload == payload.data
    finally:
        done.set()
        await store.close()
        await publisher.close()


def large(pid: int, number: int, attempt: str = "a", payload: Payload | None = None) -> StagedBatch:
    payload = payload or batch(10, 1 << 20)
    return StagedBatch(pid=pid, write_id="w", attempt=attempt, number=number, epoch=0, payload=payload)


async def longest_append(store: PartitionStore, pid: int, done: asyncio.Event) -> float:
    """Append until `done`, and return the seconds of the longest append."""
    longest = 0.0
    while not done.is_set():
        began = time.perf_counter()
        await append_one(store, plain(pid, 1))
        longest = max(longest, time.perf_counter() - began)
    return longest
