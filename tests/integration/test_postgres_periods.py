"""Keys and producers on PostgreSQL by period: rows from before, and changes of the period under load."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from lakelog.model.message import PARTITION_BITS
from lakelog.storage.postgres import migrate, open_store
from lakelog.storage.postgres.trimming import PERIOD_LENGTH
from lakelog.storage.store import PartitionStore, Refused, Reservation, Trimmed, Verdict
from tests.contract.values import (
    append_one,
    appended,
    create_one,
    new_hash,
    new_incarnation,
    new_producer,
    numbered,
    refused,
    run,
    with_keys,
)

ROUNDS = 30
BATCHES = 400
AGED = (("key_append", "expires_at"), ("key_reservation", "expires_at"), ("producer", "at"), ("period", "began_at"))


@asynccontextmanager
async def opened(database: str) -> AsyncIterator[tuple[PartitionStore, asyncpg.Connection]]:
    await migrate(database)
    admin = await asyncpg.connect(database)
    store = await open_store(database)
    try:
        yield store, admin
    finally:
        await store.close()
        await admin.close()


async def pass_by(admin: asyncpg.Connection, time: timedelta) -> None:
    for table, column in (*AGED, ("period", "ended_at")):
        await admin.execute(f"update lakelog.{table} set {column} = {column} - $1::interval", time)


async def test_rows_from_before_the_migration_count_until_they_expire(database: str) -> None:
    async with opened(database) as (store, admin):
        pid, key, producer, body = await create_one(store), new_hash(), new_producer(), new_hash()
        incarnation = pid >> PARTITION_BITS
        await admin.execute("set session_replication_role = replica")
        await admin.execute("insert into lakelog.keyed_append values ($1, $2, 70, now())", pid, key)
        await admin.execute("insert into lakelog.reservation values ($1, $2, $3, 5, now())", incarnation, key, body)
        await admin.execute(
            "insert into lakelog.producer_batch select $1, $2, n, 1, 10 * n, now() from generate_series(0, 7) n",
            pid,
            producer,
        )
        held = Reservation(incarnation=incarnation, key_hash=key, body_hash=body, partition=5)
        other = Reservation(incarnation=incarnation, key_hash=key, body_hash=new_hash(), partition=1)
        assert await store.reserve([other], durable=True) == [held]
        assert [verdict.offset for verdict in (await refused(store, with_keys(pid, key))).verdicts] == [70]
        (known,) = (await refused(store, numbered(pid, run(producer, 4)))).verdicts
        assert (known.verdict, known.offset) == (Verdict.DUPLICATE, 40)
        await appended(store, numbered(pid, run(producer, 8)))
        for sequence, verdict in ((2, Verdict.GAP), (5, Verdict.DUPLICATE), (10, Verdict.GAP)):
            assert (await refused(store, numbered(pid, run(producer, sequence)))).verdicts[0].verdict is verdict
        for table in ("keyed_append", "reservation", "producer_batch"):
            await admin.execute(f"update lakelog.{table} set at = at - interval '2 days'")
        assert await store.reserve([other], durable=True) == [other]
        assert (await append_one(store, with_keys(pid, key))).pid == pid
        assert await store.trim({}) == Trimmed(heads=2, producers=8, keys=1)
        assert await admin.fetchval("select exists (select from lakelog.unslotted)")
        await admin.execute("update lakelog.unslotted set migrated_at = migrated_at - interval '2 hours'")
        await store.trim({})
        assert not await admin.fetchval("select exists (select from lakelog.unslotted)")


async def test_a_call_of_the_previous_function_reserves_nothing_beside_the_new_one(database: str) -> None:
    """It ran during the migration. Its caller repeats it."""
    async with opened(database) as (_, admin):
        with pytest.raises(asyncpg.SerializationError):
            await admin.execute("insert into lakelog.reservation values (1, 'k', 'b', 0, now())")


async def test_servers_of_the_version_before_find_and_write_the_same_keys(database: str) -> None:
    async with opened(database) as (store, admin):
        pid, old, new = await create_one(store), new_hash(), new_hash()
        await appended(store, with_keys(pid, old))
        roll = (await store.roll_active()).roll
        call = "select * from lakelog.append($1, $2, '{0}', '{1}', '{1}', '{}', '{}', '{}', '{}', '{}', $2, $3, '{0}')"
        (repeat, refusal) = await admin.fetch(call, roll, [pid], [old])
        assert (repeat["verdict"], repeat["part_offset"], refusal["status"]) == (1, 0, 4)
        (written,) = await admin.fetch(call, roll, [pid], [new])
        assert (written["status"], written["base"]) == (0, 1)
        assert isinstance(await append_one(store, with_keys(pid, new)), Refused)
        reserve = "select * from lakelog.reserve(true, $1, $2, $3, $4)"
        (first,) = await admin.fetch(reserve, [9], [old], [new], [3])
        held = Reservation(incarnation=9, key_hash=old, body_hash=new, partition=3)
        assert (first["body_hash"], first["partition"]) == (new, 3)
        assert await store.reserve([held], durable=True) == [held]


async def test_one_reservation_wins_while_periods_change(database: str) -> None:
    """S4: two servers reserve the same keys. Without the lock, one of them could write to the next period."""
    async with opened(database) as (store, admin):
        other, incarnation = await open_store(database), new_incarnation()
        changes = 0
        try:
            for _ in range(ROUNDS):
                keys = [new_hash() for _ in range(20)]

                def mine(partition: int, keys: list[bytes] = keys) -> list[Reservation]:
                    return [
                        Reservation(incarnation=incarnation, key_hash=key, body_hash=b"b", partition=partition)
                        for key in keys
                    ]

                one, two, changed = await asyncio.gather(
                    store.reserve(mine(1), durable=True),
                    other.reserve(mine(2), durable=False),
                    admin.fetchval("select lakelog.period_begin(interval '0')"),
                )
                assert one == two
                assert await store.reserve(mine(3), durable=True) == one
                changes += changed
                # Slots are free again at once.
                await admin.execute("update lakelog.period set ended_at = ended_at - interval '26 hours'")
                while await admin.fetchval("select lakelog.period_empty()"):
                    pass
            assert changes > ROUNDS / 2
        finally:
            await other.close()


async def test_no_period_begins_during_a_reservation(database: str) -> None:
    """A call that runs into the next period would not find the key there, and reserve it again."""
    async with opened(database) as (store, admin):
        await appended(store, with_keys(await create_one(store), new_hash()))
        caller = await asyncpg.connect(database)
        begin = "select lakelog.period_begin(interval '0')"
        try:
            async with caller.transaction():
                await caller.execute("select lakelog.reserve(true, '{1}', '{k}', '{b}', '{0}', '{1 day}')")
                assert not await admin.fetchval(begin)
            assert await admin.fetchval(begin)
        finally:
            await caller.close()


async def test_a_period_ends_when_it_is_old_and_has_rows(database: str) -> None:
    async with opened(database) as (store, admin):
        pid = await create_one(store)
        active = "select slot from lakelog.period where began_at is not null and ended_at is null"
        used = "select count(*) from lakelog.period where began_at is not null"
        assert await admin.fetchval(active) == 0
        await pass_by(admin, PERIOD_LENGTH)
        await store.trim({})
        assert await admin.fetchval(used) == 1, "an empty one begins again"
        await appended(store, with_keys(pid, new_hash()))
        await store.trim({})
        assert await admin.fetchval(used) == 1, "not old enough"
        for periods in (2, 3, 4):
            await pass_by(admin, PERIOD_LENGTH)
            await store.trim({})
            assert await admin.fetchval(used) == periods
            await appended(store, with_keys(pid, new_hash()))
        emptied = []
        for _ in range(8):
            await pass_by(admin, PERIOD_LENGTH)
            emptied.append((await store.trim({})).periods)
            await appended(store, with_keys(pid, new_hash()))
        assert sum(emptied) == 7
        assert await admin.fetchval(used) == 5


async def test_a_reader_of_the_tables_delays_a_period_and_no_publisher(database: str) -> None:
    """A backup reads all tables for hours."""
    async with opened(database) as (store, admin):
        pid, key = await create_one(store), new_hash()
        await appended(store, with_keys(pid, key))
        await admin.execute("select lakelog.period_begin(interval '0')")
        await pass_by(admin, timedelta(days=2))
        backup = await asyncpg.connect(database)
        try:
            async with backup.transaction():
                await backup.execute("select count(*) from lakelog.key_append")
                assert (await store.trim({})).periods == 0
                async with asyncio.timeout(15):
                    assert (await appended(store, with_keys(pid, key))).base == 1
            assert (await store.trim({})).periods == 1
            assert isinstance(await append_one(store, with_keys(pid, key)), Refused)
        finally:
            await backup.close()


async def test_keys_that_expired_are_found_through_an_index(database: str) -> None:
    """Maintenance looks at the oldest rows, whatever the number of keys that still count."""
    async with opened(database) as (_, admin):
        await admin.execute(
            "insert into lakelog.key_append select 5, 7 << 16, int8send(n), 0, "
            "now() + interval '1 h' + n * interval '1 s' from generate_series(1, 50000) n"
        )
        await admin.execute("analyze lakelog.key_append")
        rows = await admin.fetch(
            "explain (analyze, buffers, timing off) select a.ctid from lakelog.key_append a "
            "where a.slot = 5 and a.expires_at <= now() order by a.expires_at limit 20000"
        )
        plan = "\n".join(row[0] for row in rows)
        assert "key_append_expired" in plan and "actual rows=0" in plan, plan


@pytest.mark.nightly
async def test_a_producer_is_found_quickly_while_a_long_transaction_runs(database: str) -> None:
    async with opened(database) as (store, admin):
        pid, producer = await create_one(store), new_producer()
        await appended(store, numbered(pid, run(producer, 0)))
        pages_at_first = await _pages_read(admin, pid, producer)
        reader = await asyncpg.connect(database)
        try:
            async with reader.transaction(isolation="repeatable_read"):
                await reader.fetchval("select count(*) from lakelog.producer")
                for sequence in range(1, BATCHES):
                    await appended(store, numbered(pid, run(producer, sequence)))
                    if sequence % (BATCHES // 4) == 0:
                        await store.trim({})
                assert await _pages_read(admin, pid, producer) <= pages_at_first + 2
        finally:
            await reader.close()
        assert (await store.trim({})).producers == BATCHES // 4 - 1
        assert await admin.fetchval("select count(*) from lakelog.producer") == 1
        (verdict,) = (await refused(store, numbered(pid, run(producer, BATCHES - 5)))).verdicts
        assert verdict.verdict is Verdict.DUPLICATE


async def _pages_read(admin: asyncpg.Connection, pid: int, producer: bytes) -> int:
    search = (
        "explain (analyze, buffers, format json) select f.* from lakelog.period_slots() s "
        "cross join lateral lakelog.producer_find($1, $2, s.used, clock_timestamp()) f"
    )
    await admin.fetchval(search, pid, producer)
    (plan,) = json.loads(await admin.fetchval(search, pid, producer))
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])
