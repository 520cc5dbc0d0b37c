"""Listing a thousand groups on PostgreSQL takes as many statements as listing one, and one row of each journal."""

from __future__ import annotations

from typing import LiteralString

import asyncpg
import pytest

from lakelog.engine import Engine
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import JoinRequest
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.postgres import migrate, open_catalog, open_cells
from lakelog.storage.postgres.connection import Database

GROUPS, PARTITIONS, MESSAGES = 1000, 4, 100
WORKER = "host-12345-ab12cd34"


async def work(engine: Engine, scope: Scope) -> None:
    """Create a group with a member: most messages acked, one dead in each partition, some leased, some not read."""
    join = JoinRequest(group="g0000", topics=("orders",), member_id=WORKER, session_ms=1_800_000, start_from="earliest")
    await engine.members.join(scope, join)
    for n in range(16):
        ask = ConsumeRequest(
            topic="orders", group="g0000", owner=WORKER, max_messages=2 * PARTITIONS, start_from="earliest"
        )
        leases = (await engine.leases.consume(scope, ask)).leases
        if n < 15:
            answers = [
                LeaseAnswer(
                    verb=Verb.ACK if n else Verb.FAIL, partition=each.partition, token=each.token, offsets=(at,)
                )
                for each in leases
                for at in each.offsets
            ]
            await engine.leases.answer(scope, "orders", "g0000", WORKER, answers)


async def copy_group(admin: asyncpg.Connection, count: int) -> None:
    """Create this number of further groups, each with a copy of all data of the first one."""
    await admin.execute(
        "insert into lakelog.consumer_group (environment_id, name, kind, settings, cell) "
        "select environment_id, 'g' || lpad(n::text, 4, '0'), kind, settings, cell "
        "from lakelog.consumer_group, generate_series(1, $1::integer) n",
        count,
    )
    for table in ("group_topic", "journal", "members", "heartbeat", "dead_letter"):
        columns = await admin.fetchval(
            "select string_agg('x.' || column_name, ', ' order by ordinal_position) from information_schema.columns "
            "where table_schema = 'lakelog' and table_name = $1 and column_name <> 'group_id'",
            table,
        )
        await admin.execute(
            f"insert into lakelog.{table} (group_id, {columns.replace('x.', '')}) select g.group_id, {columns} "
            f"from lakelog.{table} x join lakelog.consumer_group first on first.group_id = x.group_id, "
            "lakelog.consumer_group g where first.name = 'g0000' and g.name <> 'g0000'"
        )


async def test_a_thousand_groups_are_listed_with_as_many_statements_as_one(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(database)
    read, rows = Database.read, list[int]()

    async def counted(self: Database, query: LiteralString, *arguments: object) -> list[asyncpg.Record]:
        found = await read(self, query, *arguments)
        rows.append(len(found))
        return found

    catalog = await open_catalog(database)
    engine = Engine(catalog, await open_cells(database))
    await engine.start()
    admin = await asyncpg.connect(database)
    try:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders", PARTITIONS)
        messages = [Message(value=b"%d" % n, partition=n % PARTITIONS) for n in range(MESSAGES * PARTITIONS)]
        await engine.publisher.messages(scope, "orders", messages)
        await work(engine, scope)
        monkeypatch.setattr(Database, "read", counted)
        (one,) = await engine.groups.list(scope)
        described = await engine.groups.describe(scope, "g0000")
        assert (one.status, one.lag) == ("working", sum(each.lag for each in described.progress))
        assert (one.member_count, one.dead_letters) == (1, described.dead_letters)
        assert one.oldest_at is not None
        rows.clear()
        await engine.groups.list(scope)
        of_one = len(rows)
        await copy_group(admin, GROUPS - 1)
        rows.clear()
        listed = await engine.groups.list(scope)
        assert len(rows) == of_one <= 10
        assert max(rows) <= GROUPS * PARTITIONS, "no more than the last row of each journal"
        assert [each.name for each in listed] == [f"g{n:04}" for n in range(GROUPS)]
        assert {(each.status, each.lag, each.oldest_at, each.member_count, each.dead_letters) for each in listed} == {
            (one.status, one.lag, one.oldest_at, one.member_count, one.dead_letters)
        }
    finally:
        await admin.close()
        await engine.close()
