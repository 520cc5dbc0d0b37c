"""Groups on PostgreSQL: a lost response, a blocked writer, another query plan, deleted rows that stay."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import warnings
from collections.abc import AsyncIterator

import asyncpg
import pytest

from lakelog.errors import GroupNotFound, OutcomeUnknown
from lakelog.model.group import Exponential, GroupKind, GroupSettings, GroupTopic, GroupTopicSettings
from lakelog.model.kinds import DeadLetterState
from lakelog.storage.groups import JOURNAL_GRACE_SECONDS, CommitStatus, DeadLetterKey, JournalRequest
from lakelog.storage.postgres import migrate, open_catalog, open_store
from lakelog.storage.postgres.connection import SETTINGS
from lakelog.storage.postgres.connection_room import POOL_SIZE
from lakelog.storage.store import PartitionStore
from tests.contract.group_values import commit, entry, letter, rows_of, versions_of, write
from tests.contract.values import create_one, head_of, plain
from tests.kit.postgres import Cluster
from tests.kit.proxy import FaultProxy
from tests.kit.waiting import eventually_async

OK, CONFLICT, TIME, _ = CommitStatus
GROUP, PID = 7, 1 << 16
INSERT = (
    "insert into lakelog.journal (group_id, pid, version, snapshot_version, at, body) values (7, $1, $2, 0, now(), '')"
)


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[PartitionStore, asyncpg.Connection]]:
    """Yield a migrated database, by its store and by a direct connection."""
    await migrate(url)
    store, admin = await open_store(url), await asyncpg.connect(url)
    try:
        yield store, admin
    finally:
        await admin.close()
        await store.close()


async def comes_true(admin: asyncpg.Connection, condition: str, *arguments: object) -> None:
    async def asked() -> bool:
        return bool(await admin.fetchval(f"select {condition}", *arguments))

    await eventually_async(asked, within=30, what=condition)  # type: ignore[arg-type]


async def someone_waits(admin: asyncpg.Connection, count: int = 1) -> None:
    waiting = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    await comes_true(admin, f"(select count(*) {waiting}) >= $1", count)


async def lose_answers(cluster: Cluster, database: str) -> None:
    await migrate(database)
    with FaultProxy("127.0.0.1", cluster.port) as proxy:
        store = await open_store(database.replace(f":{cluster.port}/", f":{proxy.port}/"))
        pid = await create_one(store)
        # A connection prepares an unknown statement first: the response to lose is the next one.
        assert await commit(store.groups, entry(GROUP, pid, 1, dead=[letter(3)])) == [OK]
        proxy.drop_answers(1)
        with pytest.raises(OutcomeUnknown):
            await commit(store.groups, entry(GROUP, pid, 2, dead=[letter(4)]))
        assert [row.version for row in await rows_of(store.groups, GROUP, pid, 1)] == [2]
        assert await commit(store.groups, entry(GROUP, pid, 2)) == [CONFLICT], "the repeat finds it written"
        first, key = (DeadLetterKey(pid=pid, offset=offset, epoch=0) for offset in (3, 4))
        await store.groups.dead_redrive(GROUP, [first], plain(pid, 1))
        proxy.drop_answers(1)
        with pytest.raises(OutcomeUnknown):
            await store.groups.dead_redrive(GROUP, [key], plain(pid, 1))
        (found,) = await store.groups.dead_find(GROUP, pid, 4)
        assert (found.state, found.redriven_to) == (DeadLetterState.REDRIVEN, 1)
        assert await store.groups.dead_redrive(GROUP, [key], plain(pid, 1)) == (None, [False])
        assert (await head_of(store, pid)).next_offset == 2
        assert proxy.dropped == 2
        await store.close()


def test_after_a_lost_response_the_store_returns_what_was_written(cluster: Cluster, database: str) -> None:
    """S9, S14: the row, its dead letter and a redrive are stored once, and a repeat reports that."""
    asyncio.run(lose_answers(cluster, database))
    with warnings.catch_warnings():
        # asyncpg leaves the socket of a connection that was cut to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.parametrize("other_commits", [True, False])
async def test_a_writer_waits_for_another_of_the_same_version(database: str, other_commits: bool) -> None:
    async with opened(database) as (store, admin), asyncio.timeout(20):
        other = await asyncpg.connect(database)
        transaction = other.transaction()
        await transaction.start()
        await other.execute(INSERT, PID, 1)
        entries = [entry(GROUP, PID, 1, dead=[letter(1)]), entry(GROUP, PID + 1, 1)]
        commits = asyncio.create_task(commit(store.groups, *entries))
        await someone_waits(admin)
        await (transaction.commit() if other_commits else transaction.rollback())
        assert await commits == [CONFLICT if other_commits else OK, OK]
        assert await store.groups.dead_count(GROUP, [PID]) == (0 if other_commits else 1)
        await other.close()


async def test_a_row_after_its_time_limit_is_refused(database: str) -> None:
    """S8: the clock is read when the row is written, not when the call begins."""
    async with opened(database) as (store, admin), asyncio.timeout(20):
        other = await asyncpg.connect(database)
        transaction = other.transaction()
        await transaction.start()
        await other.execute(INSERT, PID, 1)
        (read,) = await store.groups.journals_read([JournalRequest(group_id=GROUP, pid=PID)])
        until = read.clock_ms + 500
        entries = [entry(GROUP, PID, 1, bounds=(0, until), dead=[letter(1)]), entry(GROUP, PID + 1, 1)]
        commits = asyncio.create_task(store.groups.journals_commit(entries))
        await someone_waits(admin)
        await comes_true(admin, "lakelog.ms(clock_timestamp()) > $1", until)
        await transaction.rollback()
        late, good = await commits
        assert [late.status, good.status] == [TIME, OK]
        assert late.clock_ms > until
        assert await versions_of(store.groups, GROUP, PID) == []
        assert await store.groups.dead_count(GROUP, [PID]) == 0
        await write(store.groups, GROUP, PID, [1])
        await other.close()


async def test_calls_cancelled_in_mid_commit_leave_the_store_usable(database: str) -> None:
    async with opened(database) as (store, admin), asyncio.timeout(60):
        for _ in range(2):
            other = await asyncpg.connect(database)
            transaction = other.transaction()
            await transaction.start()
            await other.execute(INSERT, PID, 1)
            commits = [asyncio.create_task(commit(store.groups, entry(GROUP, PID, 1))) for _ in range(POOL_SIZE)]
            await someone_waits(admin, POOL_SIZE)
            for task in commits:
                task.cancel()
            await asyncio.gather(*commits, return_exceptions=True)
            assert all(task.cancelled() for task in commits)
            await transaction.rollback()
            await other.close()
        assert await rows_of(store.groups, GROUP, PID) == []
        entries = [entry(GROUP, PID + n, 1) for n in range(2 * POOL_SIZE)]
        answers = await asyncio.gather(*(commit(store.groups, each) for each in entries))
        assert answers == [[OK]] * len(entries)


async def every_verb(store: PartitionStore, version: int) -> None:
    """Run the statements that a server runs all the time, on one small journal."""
    key, offset = DeadLetterKey(pid=PID, offset=version, epoch=0), version
    assert await commit(store.groups, entry(GROUP, PID, version, dead=[letter(offset), letter(offset + 1)])) == [OK]
    await versions_of(store.groups, GROUP, PID, version - 2)
    await versions_of(store.groups, GROUP, PID)
    assert await store.groups.members_write(GROUP, version, b"")
    await store.groups.heartbeats_write([(GROUP, "m")])
    await store.groups.members_read(GROUP)
    await store.groups.dead_list(GROUP, [PID])
    await store.groups.dead_count(GROUP, [PID])
    await store.groups.dead_counts({GROUP: [PID]}, limit=10)
    await store.groups.journals_newest([(GROUP, PID)])
    await store.groups.dead_find(GROUP, PID, offset)
    await store.groups.dead_redrive(GROUP, [key], plain(PID, 1))
    assert await store.groups.dead_discard(GROUP, [key]) == 0


async def test_a_plan_made_for_a_tiny_table_is_right_for_a_large_one(database: str) -> None:
    """After an ANALYZE of a table with three rows, reading all of it looks cheap; that plan must not be chosen."""
    await migrate(database)
    admin = await asyncpg.connect(database)
    tables = ("journal", "members", "heartbeat", "dead_letter")
    for table in tables:
        await admin.execute(f"alter table lakelog.{table} set (autovacuum_enabled = off)")
    store = await open_store(database)
    await store.heads_create([PID], 0)
    await every_verb(store, 1)
    await admin.execute("analyze")
    await every_verb(store, 2)
    await admin.execute(
        "insert into lakelog.journal select 7, 5, n, 0, now(), 1, '' from generate_series(1, 20000) n;"
        "insert into lakelog.members select 5, n, now(), 1, '' from generate_series(1, 20000) n;"
        "insert into lakelog.heartbeat select 5, n::text, now() from generate_series(1, 20000) n;"
        "insert into lakelog.dead_letter select 7, 5, n, 0, 0, now(), 1, 1, '', '' from generate_series(1, 20000) n;"
        "select pg_stat_force_next_flush()"
    )
    await admin.execute("select pg_stat_reset()")
    await every_verb(store, 3)
    await store.close()
    counts = f"from pg_stat_user_tables where relname in {tables}"
    # A session reports its counts when it ends.
    await comes_true(admin, f"bool_and(idx_scan > 0) {counts}")
    assert await admin.fetch(f"select relname, seq_scan {counts} and seq_scan > 0") == []
    read = "select indexrelname, idx_tup_read from pg_stat_user_indexes where idx_tup_read > 50"
    assert await admin.fetch(f"{read} and relname in {tables}") == []
    await admin.close()


async def test_under_a_held_snapshot_a_trim_does_not_meet_the_trimmed_again(database: str) -> None:
    """Rows that an old snapshot keeps cannot be removed: commits, reads and trims must not scan them."""
    async with opened(database) as (store, admin):
        holder = await asyncpg.connect(database)
        await write(store.groups, GROUP, PID, [1])
        held = holder.transaction(isolation="repeatable_read")
        await held.start()
        await holder.fetch("select count(*) from lakelog.journal")
        rows = 4000
        await admin.execute(
            "insert into lakelog.journal (group_id, pid, version, snapshot_version, at, body) "
            "select 7, $1, n, n / 256 * 256, now() - interval '2 minutes', 'x' from generate_series(2, $2::integer) n",
            PID,
            rows,
        )
        assert await store.groups.journals_trim() == rows // 256 * 256 - 1
        assert await store.groups.journals_trim() == 0
        await write(store.groups, GROUP, PID, range(rows + 1, rows + 300), snapshots=[rows + 100])
        await admin.execute("update lakelog.journal set at = at - interval '2 minutes' where version > $1", rows)
        read = await _index_entries_read(admin)
        trimmed = await admin.fetchval("select lakelog.journals_trim(interval '60 seconds', '{}', 100000)")
        assert trimmed == rows + 100 - rows // 256 * 256
        assert await _index_entries_read(admin) - read < trimmed + 500
        started = time.monotonic()
        await write(store.groups, GROUP, PID, range(rows + 300, rows + 400))
        assert time.monotonic() - started < 5
        await held.rollback()
        await holder.close()


async def _index_entries_read(admin: asyncpg.Connection) -> int:
    await admin.execute("select pg_stat_force_next_flush()")
    return int(
        await admin.fetchval("select idx_tup_read from pg_stat_user_indexes where indexrelname = 'journal_pkey'")
    )


async def test_one_trim_at_a_time(database: str) -> None:
    async with opened(database) as (store, admin):
        await write(store.groups, GROUP, PID, [1])
        async with admin.transaction():
            await admin.execute("select pg_advisory_xact_lock(lakelog.lock_key(-2))")
            assert await asyncio.wait_for(store.groups.journals_trim([GROUP]), 5) is None
        assert await store.groups.journals_trim([GROUP]) == 1


def test_no_statement_outlives_a_third_of_the_grace() -> None:
    """A writer whose snapshot misses a row must find it in the key: the row may not be removed while the statement
    runs.
    """
    assert SETTINGS["statement_timeout"] == "20s"
    assert JOURNAL_GRACE_SECONDS >= 3 * 20


async def test_a_deleted_group_is_forgotten_an_hour_later(database: str) -> None:
    await migrate(database)
    catalog, admin = await open_catalog(database), await asyncpg.connect(database)
    scope = await catalog.scope_create("p", "dev")
    group = await catalog.groups.group_create(scope, "billing", GroupKind.LEASE, GroupSettings(), 0)
    await catalog.groups.group_delete(group)
    for minutes, left in ((58, [group.group_id]), (3, [])):
        await admin.execute(
            "update lakelog.consumer_group set deleted_at = deleted_at - make_interval(mins => $1)", minutes
        )
        await catalog.groups.group_forget([group.group_id])
        assert await catalog.groups.group_deleted() == left
    await catalog.close()
    await admin.close()


async def test_settings_of_another_version_are_read(database: str) -> None:
    await migrate(database)
    catalog, admin = await open_catalog(database), await asyncpg.connect(database)
    scope = await catalog.scope_create("p", "dev")
    await catalog.groups.group_create(scope, "billing", GroupKind.LEASE, GroupSettings(), 0)
    await admin.execute(
        'update lakelog.consumer_group set settings = \'{"window": 5, "from_the_future": {"a": 1}, '
        '"retries": {"strategy": "fixed", "max": 2, "seconds": 3, "until": "then"}, '
        '"topics": {"orders": {"retries": {"max": 7, "until": "then"}, "from_the_future": 1}}}\''
    )
    found = await catalog.groups.group_find(scope, "billing")
    assert found is not None
    assert (found.settings.window, found.settings.order) == (5, GroupSettings().order)
    assert found.settings.retries.max == 2
    assert found.settings.topics == {"orders": GroupTopicSettings(retries=Exponential(max=7))}
    await catalog.close()
    await admin.close()


async def test_a_reading_waits_for_a_delete_of_its_group(database: str) -> None:
    """Otherwise it would outlive the group: no call lists it, and no call deletes it."""
    await migrate(database)
    catalog, admin = await open_catalog(database), await asyncpg.connect(database)
    other = await asyncpg.connect(database)
    scope = await catalog.scope_create("p", "dev")
    group = await catalog.groups.group_create(scope, "billing", GroupKind.LEASE, GroupSettings(), 0)
    async with other.transaction():
        await other.execute("update lakelog.consumer_group set deleted_at = now()")
        reading = GroupTopic(group_id=group.group_id, incarnation=1, starts=(0,))
        create = asyncio.create_task(catalog.groups.group_topic_create(reading))
        await someone_waits(admin)
    with pytest.raises(GroupNotFound):
        await create
    assert await admin.fetchval("select count(*) from lakelog.group_topic") == 0
    for connection in (admin, other):
        await connection.close()
    await catalog.close()
