"""The schema: migrations lead to it, schema.sql is its current state, and the service's role owns nothing."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

import lakelog.storage.postgres
from lakelog.errors import ConfigurationError, SchemaOutOfDate
from lakelog.model.group import GroupKind, GroupSettings, GroupTopic
from lakelog.model.topic import TopicSettings
from lakelog.storage.groups import CommitStatus, DeadLetterKey, ServerInfo
from lakelog.storage.postgres import migrate, open_catalog, open_cells, open_store, queries
from lakelog.storage.store import Appended, Catalog, HeadState, PartitionStore
from tests.contract.group_values import commit, entry, letter, versions_of
from tests.contract.values import plain
from tests.kit.postgres import Cluster, _binary

SCHEMA = Path(lakelog.storage.postgres.__file__).with_name("schema.sql")


def present(url: str) -> str:
    """Return the schema as pg_dump prints it, without the parts that differ between versions of pg_dump."""
    dump = subprocess.run(
        [_binary("pg_dump"), "--schema-only", "--schema=lakelog", "--no-owner", "--no-comments", url],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lines = [line for line in dump.splitlines() if not line.startswith(("--", "SET ", "SELECT pg_catalog", "\\"))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


async def test_schema_sql_is_what_the_migrations_make(database: str) -> None:
    """Run this test with UPDATE_SCHEMA=1 to write the file again."""
    await migrate(database)
    found = present(database)
    if os.environ.get("UPDATE_SCHEMA"):
        SCHEMA.write_text(
            "-- The present schema, written by pg_dump from the migrations; a test keeps it in step.\n\n" + found
        )
    assert SCHEMA.read_text().split("\n\n", 1)[1] == found


async def test_migrating_twice_at_once_applies_each_step_once(database: str) -> None:
    applied = await asyncio.gather(*(migrate(database) for _ in range(4)))
    assert sorted(map(len, applied))[:3] == [0, 0, 0]
    assert len(max(applied, key=len)) >= 1


async def test_a_database_without_the_schema_says_what_to_run(database: str) -> None:
    with pytest.raises(SchemaOutOfDate, match="lakelog migrate"):
        await open_store(database)


async def test_a_new_cell_is_numbered_once_and_checked_when_opened(database: str, second_database: str) -> None:
    with pytest.raises(ConfigurationError, match="lakelog migrate"):
        await migrate(database)
        await migrate(second_database)
        await open_cells(database, {"b": second_database})
    for _ in range(2):
        await migrate(database, {"b": second_database})
    stores = await open_cells(database, {"b": second_database})
    assert sorted(stores) == [0, 1]
    for store in stores.values():
        await store.close()
    with pytest.raises(ConfigurationError, match="another cell"):
        await open_cells(database, {"b": database})
    with pytest.raises(ConfigurationError, match="'b'"):
        await open_cells(database)


async def test_a_cell_of_another_installation_is_refused(cluster: Cluster, database: str, second_database: str) -> None:
    await migrate(database, {"b": second_database})
    other = cluster.create_database()
    await migrate(other)
    with pytest.raises(ConfigurationError, match="another installation"):
        await migrate(other, {"x": second_database})
    cluster.drop_database(other)


async def use_groups(catalog: Catalog, store: PartitionStore) -> None:
    """Run every operation of groups once."""
    scope = await catalog.scope_create("default", "default")
    topic = await catalog.topic_create(scope, "orders", TopicSettings(), [0])
    group = await catalog.groups.group_create(scope, "billing", GroupKind.LEASE, GroupSettings(), 0)
    group = await catalog.groups.group_alter(group, group.settings, frozenset({"orders"}))
    reading = GroupTopic(group_id=group.group_id, incarnation=topic.incarnation, starts=(0,))
    await catalog.groups.group_topic_seek(await catalog.groups.group_topic_create(reading), [1])
    assert (
        len(await catalog.groups.group_topic_list(group))
        == len(await catalog.groups.group_topic_list_by_topic(topic))
        == 1
    )
    await catalog.groups.server_seen(ServerInfo(server_id="s", address="http://s"), memory_seconds=9)
    await catalog.groups.server_gone("s")
    assert await catalog.groups.server_keys(b"k", rotate_seconds=9, keep_seconds=9) == [b"k"]
    assert await catalog.groups.server_keys(b"l", rotate_seconds=0, keep_seconds=0) == [b"l"]
    pid = topic.pid(0)
    await store.heads_create([pid], 0)
    letters = [letter(offset) for offset in (1, 2)]
    assert await commit(store.groups, entry(group.group_id, pid, 1, dead=letters)) == [CommitStatus.OK]
    assert await versions_of(store.groups, group.group_id, pid) == [1]
    one, two = (DeadLetterKey(pid=pid, offset=offset, epoch=0) for offset in (1, 2))
    assert await store.groups.dead_discard(group.group_id, [one]) == 1
    assert isinstance((await store.groups.dead_redrive(group.group_id, [two], plain(pid, 1, epoch=1)))[0], Appended)
    assert await store.groups.members_write(group.group_id, 1, b"")
    await store.groups.heartbeats_write([(group.group_id, "m"), (group.group_id, "n")])
    await store.groups.heartbeats_drop(group.group_id, ["m"])
    assert (await store.groups.members_read(group.group_id)).seen_ms.keys() == {"n"}
    assert await catalog.groups.group_delete(group)
    assert await store.groups.journals_trim(await catalog.groups.group_deleted()) == 4
    await catalog.groups.group_forget([group.group_id])
    await catalog.topic_delete(topic)
    await catalog.topic_forget(topic)


async def test_the_service_role_works_and_owns_nothing(cluster: Cluster, database: str) -> None:
    """A login that is only a member of lakelog_service can run every operation, and no DDL of its own."""
    await migrate(database)
    admin = await asyncpg.connect(database)
    await admin.execute("drop role if exists app_login")
    await admin.execute("create role app_login login in role lakelog_service")
    name = await admin.fetchval("select current_database()")
    url = cluster.url(name, "app_login")
    store, catalog = await open_store(url), await open_catalog(url)
    try:
        scope = await catalog.scope_create("default", "default")
        assert (await catalog.scope_find("default", "default")) == scope
        await store.heads_create([1 << 16], 1)
        before = await store.roll_active()
        assert await store.roll() > before.roll
        assert before.roll in await store.rolls_drop()
        await store.trim({})
        await store.cold.trim()
        await store.rolls_compact()
        await store.heads_close([9 << 16], HeadState.DELETED)
        assert await store.partitions_remove(memory=timedelta(0)) == 1
        assert await store.elections.elect("task", "runner", timedelta(0))
        await store.elections.resign("task", "runner")
        await store.durability()
        await use_groups(catalog, store)
        service = await asyncpg.connect(url)
        for statement in (
            "create table lakelog.mine (id int)",
            "drop table lakelog.head",
            "delete from lakelog.topic",
            "delete from lakelog.consumer_group",
            "update lakelog.journal set version = 2",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await service.execute(statement)
        await service.close()
        owned = await admin.fetchval(
            "select count(*) from pg_class c join pg_roles r on r.oid = c.relowner "
            "where r.rolname in ('app_login', 'lakelog_service')"
        )
        assert owned == 0
    finally:
        await store.close()
        await catalog.close()
        await admin.execute("drop role app_login")
        await admin.close()


async def test_a_server_of_the_version_before_tracebacks_writes_dead_letters_without(database: str) -> None:
    """Servers run while the schema is migrated."""
    await migrate(database)
    connection = await asyncpg.connect(database)
    await connection.execute("update lakelog.installation set feature_level = 1")
    entry = [[1], [1 << 16], [1], [True], [b"state"], [0], [1 << 60]]
    dead = [[1], [7], [0], [5], [4], ["boom"], ["ann"], [b"payload"]]
    try:
        places = ", ".join(f"${number}" for number in range(1, 16))
        written = await connection.fetchval(f"select statuses from lakelog.journals_commit({places})", *entry, *dead)
    finally:
        await connection.close()
    store = await open_store(database)
    try:
        (found,) = await store.groups.dead_list(1, [1 << 16])
    finally:
        await store.close()
    assert (written, found.reason, found.traceback) == ([0], "boom", None)


async def test_remains_of_large_snapshots_are_vacuumed_early(database: str) -> None:
    """The journal's own threshold is for rows; PostgreSQL stores large values in chunks of 2 KiB beside them."""
    await migrate(database)
    options = (
        "select t.reloptions from pg_class c join pg_class t on t.oid = c.reltoastrelid where c.oid = $1::regclass"
    )
    connection = await asyncpg.connect(database)
    try:
        found = await connection.fetchval(options, "lakelog.journal")
    finally:
        await connection.close()
    assert found is not None and "autovacuum_vacuum_threshold=2000" in found


@pytest.mark.parametrize(
    ("statement", "given", "tables"),
    [
        ("trimming.keys_trim", [[1], 1000, timedelta(minutes=1)], ["reservation", "keyed_append"]),
        ("trimming.keys_trim_topic", [7, 1000, timedelta(minutes=1)], ["reservation", "keyed_append"]),
        ("staging.promoted_trim", [1000], ["promoted"]),
    ],
)
async def test_old_rows_are_found_without_reading_all_rows(
    database: str, statement: str, given: list[object], tables: list[str]
) -> None:
    """Every server runs it every few seconds, and a day has many keys."""
    rows = {
        "reservation": "7, int8send(n), ''::bytea, 0, now()",
        "keyed_append": "7 << 16, int8send(n), 0, now()",
        "promoted": "7 << 16, n::text, 0, 1, now()",
    }
    await migrate(database)
    connection = await asyncpg.connect(database)
    await connection.execute("set session_replication_role = replica")
    try:
        for table in tables:
            await connection.execute(
                f"insert into lakelog.{table} select {rows[table]} from generate_series(1, 50000) n"
            )
            await connection.execute(f"vacuum analyze lakelog.{table}")
        file, name = statement.split(".")
        sql = "explain " + queries.load(file)[name]
        plan = "\n".join(row[0] for row in await connection.fetch(sql, timedelta(days=1), *given))
    finally:
        await connection.close()
    assert all(f"{table}_by_time" in plan for table in tables), plan
