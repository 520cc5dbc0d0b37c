"""Rolls of a cell with many partitions, on PostgreSQL with its default number of lock slots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import asyncpg
import pytest

from lakelog.errors import ConfigurationError
from lakelog.storage.compaction import RollCounts
from lakelog.storage.postgres import migrate, open_store, partitions
from lakelog.storage.store import Append, Appended, HeadState
from tests.contract.values import batch, create_one, head_of, new_pids, plain, read_all, read_batches
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.kit.waiting import eventually_async


@pytest.fixture(scope="module")
def default_cluster() -> Iterator[Cluster]:
    """A cluster with the default lock slots: 64 locks for each of 100 connections."""
    with Cluster(settings={"max_connections": "100", "max_locks_per_transaction": "64"}) as cluster:
        yield cluster


@pytest.mark.timeout(300)
async def test_a_roll_costs_the_same_for_any_number_of_partitions(default_cluster: Cluster, size: Size) -> None:
    """90 % of the partitions are deleted. A roll takes less than 1 s, and publishers wait less than 100 ms for it."""
    topics = size.pick(ci=2, full=10)
    url = default_cluster.create_database()
    await migrate(url)
    store = await open_store(url)
    try:
        pid = await create_one(store)
        for number in range(topics):
            pids = new_pids(10_000)
            await store.heads_create(pids, 0)
            if number:
                await store.heads_close(pids, HeadState.DELETED)
        waits: list[float] = []
        running = True

        async def publish() -> None:
            while running:
                began = time.perf_counter()
                (answer,) = await store.append([plain(pid, 1)])
                waits.append(time.perf_counter() - began)
                assert isinstance(answer, Appended)

        publishing = asyncio.create_task(publish())
        rolls: list[float] = []
        for _ in range(3):
            began = time.perf_counter()
            await store.roll()
            rolls.append(time.perf_counter() - began)
            await asyncio.sleep(0.1)
        running = False
        await publishing
        print(f"{topics * 10_000} partitions: roll {max(rolls):.3f} s, longest publish {max(waits):.3f} s")
        # At ci size, the longest waits are those of a busy machine.
        assert min(rolls) < size.pick(ci=10.0, full=1.0)
        assert sorted(waits)[-2] < size.pick(ci=5.0, full=0.1) + 2 * sorted(waits)[len(waits) // 2]
    finally:
        await store.close()
        default_cluster.drop_database(url)


@pytest.mark.timeout(300)
async def test_a_topic_with_ten_thousand_partitions_is_written_and_deleted(default_cluster: Cluster) -> None:
    """One call that names all partitions takes a bounded number of locks at a time."""
    url = default_cluster.create_database()
    await migrate(url)
    store = await open_store(url)
    pids = new_pids(10_000)
    try:
        await store.heads_create(pids, 0)
        appends = [plain(pid, 1) for pid in pids]
        parts = [appends[start : start + 250] for start in range(0, len(appends), 250)]
        answers = await asyncio.gather(*map(store.append, parts))
        assert all(isinstance(answer, Appended) for each in answers for answer in each)
        await store.epoch_raise(pids, 1)
        removed = await store.log_start_raise([(pid, 1) for pid in pids])
        assert [count for _, count in removed] == [1] * len(pids)
        await store.heads_close(pids, HeadState.DELETED)
        assert {head.state for head in await store.heads_read(pids)} == {HeadState.DELETED}
    finally:
        await store.close()
        default_cluster.drop_database(url)


async def test_a_read_of_new_batches_reads_no_others(database: str) -> None:
    """The plan is made while the hot table is small, and stays."""
    await migrate(database)
    store = await open_store(database)
    admin = await asyncpg.connect(database)
    try:
        pid = await create_one(store)
        for _ in range(300):
            await store.append([plain(pid, 1)])
            assert len(await read_batches(store, pid, max(0, (await head_of(store, pid)).next_offset - 3))) <= 3
    finally:
        await store.close()
    try:
        read = "select sum(idx_tup_read) from pg_stat_user_indexes where relname like 'hot_%'"

        async def is_counted() -> bool:
            return bool(await admin.fetchval(read))

        # A session reports its counts when it ends.
        await eventually_async(is_counted, within=30)
        assert await admin.fetchval(read) <= 300 * 2 * 3
    finally:
        await admin.close()


async def test_a_compaction_copies_a_large_span_in_small_steps(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement moves a part of the span, and the log is whole after every one of them."""
    monkeypatch.setattr(partitions, "_COMPACT_BYTES", 2500)
    monkeypatch.setattr(partitions, "_COMPACT_STATEMENTS", 1)
    await migrate(database)
    store = await open_store(database)
    try:
        pid, gone = new_pids(2)
        await store.heads_create([pid, gone], 0)
        payloads = [batch(2, size=1000) for _ in range(10)]
        await store.append([Append(pid=pid, epoch=0, payloads=payloads), plain(gone, 1)])
        await store.append([Append(pid=gone, epoch=0, payloads=[batch(1, size=100_000)])])
        await store.log_start_raise([(gone, 2), (pid, 5)])
        old = await store.roll_active()
        await store.roll()
        copied = []
        while step := (await store.rolls_compact()).bytes:
            assert [each.base for each in await read_all(store, pid)] == list(range(4, 20, 2))
            copied.append(step)
        assert copied == [3000, 3000, 2000]
        assert await store.rolls_drop() == [old.roll]
        assert [each.payload for each in await read_all(store, pid)] == [each.data for each in payloads[2:]]
    finally:
        await store.close()


async def test_a_retired_table_that_a_transaction_uses_is_counted_and_dropped_later(database: str) -> None:
    await migrate(database)
    store = await open_store(database)
    reader = await asyncpg.connect(database)
    try:
        pid = await create_one(store)
        await store.append([plain(pid, 1)])
        old = (await store.roll_active()).roll
        await store.roll()
        assert await store.rolls_count() == RollCounts(messages=2)
        async with reader.transaction():
            await reader.fetch(f"select count(*) from lakelog.hot_{old}")
            await store.log_start_raise([(pid, 1)])
            assert await store.rolls_drop() == []
            assert await store.rolls_count() == RollCounts(messages=1, transactions=1)
        assert await store.rolls_drop() == [old]
        assert await store.rolls_count() == RollCounts(messages=1)
    finally:
        await reader.close()
        await store.close()


async def test_a_rolled_table_is_frozen_once(database: str) -> None:
    """Autovacuum leaves the active table alone. It vacuums and freezes the table when it has been rolled."""
    await migrate(database)
    store = await open_store(database)
    connection = await asyncpg.connect(database)
    options = "select reloptions from pg_class where oid = $1::regclass"
    try:
        old = (await store.roll_active()).roll
        assert "autovacuum_enabled=off" in await connection.fetchval(options, f"lakelog.hot_{old}")
        await store.roll()
        rolled = await connection.fetchval(options, f"lakelog.hot_{old}")
        assert {"autovacuum_enabled=on", "autovacuum_freeze_min_age=0"} <= set(rolled)
        assert {"autovacuum_vacuum_insert_threshold=0", "autovacuum_vacuum_insert_scale_factor=0"} <= set(rolled)
    finally:
        await connection.close()
        await store.close()


@pytest.mark.nightly
@pytest.mark.timeout(120)
async def test_autovacuum_freezes_each_rolled_table_once() -> None:
    """Otherwise each table is read again when its rows are old, and many tables get old together."""
    frozen = (
        "select s.autovacuum_count, age(c.relfrozenxid) as age, age(t.relfrozenxid) as toast_age, "
        "c.relpages > 0 and c.relallvisible = c.relpages as is_visible "
        "from pg_stat_all_tables s join pg_class c on c.oid = s.relid join pg_class t on t.oid = c.reltoastrelid "
        "where s.relid = $1::regclass"
    )
    newest = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    with Cluster(settings={"autovacuum_naptime": "1s"}) as cluster:
        url = cluster.create_database()
        await migrate(url)
        store = await open_store(url)
        admin = await asyncpg.connect(url)
        try:
            pid = await create_one(store)
            rolls = []
            before = await admin.fetchval(newest)
            for _ in range(2):
                for _ in range(20):
                    await store.append([Append(pid=pid, epoch=0, payloads=[batch(1, size=5000)])])
                rolls.append((await store.roll_active()).roll)
                await store.roll()
            for roll in rolls:
                table = f"lakelog.hot_{roll}"

                async def is_frozen(table: str = table) -> bool:
                    (row,) = await admin.fetch(frozen, table)
                    return bool(row["autovacuum_count"] == 1 and row["is_visible"])

                await eventually_async(is_frozen, within=60)
            for _ in range(100):
                await admin.execute("select pg_current_xact_id()")
            rows = [row for roll in rolls for row in await admin.fetch(frozen, f"lakelog.hot_{roll}")]
            assert [row["autovacuum_count"] for row in rows] == [1, 1]
            # The ages count from the freeze, not from the table's first row.
            since = await admin.fetchval(newest) - before
            assert all(max(row["age"], row["toast_age"]) <= since - 20 for row in rows)
        finally:
            await admin.close()
            await store.close()


async def test_a_server_with_too_few_lock_slots_is_refused_with_the_setting_to_change() -> None:
    with Cluster(settings={"max_connections": "10", "max_locks_per_transaction": "10"}) as small:
        url = small.create_database()
        await migrate(url)
        with pytest.raises(ConfigurationError, match="max_locks_per_transaction"):
            await open_store(url)
