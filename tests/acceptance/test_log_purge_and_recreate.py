"""Purge, delete and recreate: removed messages are gone on every server immediately, and never reappear."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.errors import OffsetOutOfRange, TopicExists, TopicNotFound
from lakelog.maintenance.retention_enforcer import RetentionEnforcer
from lakelog.model.message import message_id
from lakelog.model.position import AtOffset, Earliest, Latest
from tests.acceptance.engines import Log, Server
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import stored, text


async def delete(server: Server) -> None:
    await server.engine.topics.delete(server.scope, server.name)


async def test_a_purge_returns_what_it_removed_and_offsets_continue(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(3)
        await here.publish(*(text(str(n), partition=n % 2) for n in range(9)))
        purge = await there.engine.topics.purge(there.scope, there.name)
        assert purge.removed == 9
        assert [(head.log_start, head.next_offset) for head in purge.described.heads] == [(5, 5), (4, 4), (0, 0)]
        assert await here.values(0) == []
        with pytest.raises(OffsetOutOfRange):
            await here.fetch(AtOffset(0))
        assert (await here.publish(text("x", partition=0)))[0].offset == 5
        assert (await here.engine.topics.purge(here.scope, here.name)).removed == 1


async def test_a_purge_during_publishing_loses_nothing_that_it_did_not_count(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(2)

        async def publish() -> None:
            for _ in range(40):
                await here.publish(text("a", partition=0), text("b", partition=1))

        async def purge() -> int:
            return sum([(await there.engine.topics.purge(there.scope, there.name)).removed for _ in range(10)])

        _, removed = await asyncio.gather(publish(), purge())
        heads = await there.heads()
        assert [head.next_offset for head in heads] == [40, 40]
        assert removed == sum(head.log_start for head in heads)


async def test_a_deleted_topic_is_gone_at_both_servers(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(2)
        await there.publish(text("a"))
        await delete(here)
        for server in (here, there):
            with pytest.raises(TopicNotFound):
                await server.publish(text("b"))
            with pytest.raises(TopicNotFound):
                await server.fetch(Earliest())
            with pytest.raises(TopicNotFound):
                await delete(server)


async def test_a_recreated_topic_begins_at_0_at_a_server_that_remembers_the_old_one(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(2)
        await there.publish(*(text("old", partition=n % 2) for n in range(8)))
        await delete(here)
        new = await here.create(2)
        assert [m.value for m in stored(await there.fetch(Earliest()))] == []
        (receipt,) = await there.publish(text("new", partition=1))
        assert receipt.id == message_id(new.incarnation, 1, 0)
        for server in (here, there):
            assert (await server.values(0), await server.values(1)) == ([], ["new"])


@pytest.mark.parametrize(("back", "expected"), [(0, []), (1, [b"b"]), (None, [b"a", b"b"])])
async def test_a_read_at_a_server_that_remembers_the_old_topic_is_a_read_of_the_new_one(
    log: Log, back: int | None, expected: list[bytes]
) -> None:
    async with log.servers(2) as (here, there):
        await here.create()
        await there.publish(*[text("old")] * 5)
        await delete(here)
        await here.create()
        await here.publish(text("a"), text("b"))
        position = AtOffset(0) if back is None else Latest(back=back)
        assert [m.value for m in stored(await there.fetch(position))] == expected


async def test_a_long_poll_continues_in_a_recreated_topic(log: Log) -> None:
    async with log.servers(2) as (here, there):
        for _ in range(10):
            await here.create()
            poll = asyncio.create_task(there.fetch(Earliest(), wait_seconds=20))
            await eventually_async(lambda: there.engine.waiters._waiting, every=0.002)
            await delete(here)
            new = await here.create()
            await here.publish(text("new"))
            try:
                fetched = await poll
            except TopicNotFound:
                # It checked while there was none: on a busy machine that takes long.
                await delete(here)
                continue
            assert (fetched.incarnation, [m.value for m in stored(fetched)]) == (new.incarnation, [b"new"])
            return
        pytest.fail("every poll looked while there was no topic")


async def test_a_recreated_topic_may_have_fewer_partitions(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(6)
        await there.publish(*(text(str(n), key=str(n).encode()) for n in range(30)))
        await delete(here)
        await here.create(2)
        receipts = await there.publish(*(text(str(n), key=str(n).encode()) for n in range(30)))
        assert {receipt.partition for receipt in receipts} == {0, 1}
        assert sum(head.next_offset for head in await here.heads()) == 30


async def test_one_of_many_concurrent_creates_succeeds(log: Log) -> None:
    async with log.servers(2) as servers:
        answers = await asyncio.gather(*(servers[n % 2].create(3) for n in range(6)), return_exceptions=True)
        made = [answer for answer in answers if not isinstance(answer, Exception)]
        assert len(made) == 1
        assert {type(answer) for answer in answers if isinstance(answer, Exception)} == {TopicExists}
        assert [topic.incarnation for topic in await servers[1].engine.topics.list(servers[1].scope)] == [
            made[0].incarnation  # type: ignore[union-attr]
        ]


async def test_a_delete_whose_server_died_halfway_is_finished_by_maintenance(log: Log) -> None:
    async with log.servers(2) as (here, there):
        topic = await here.create(3)
        await there.publish(text("a", partition=1))
        assert await here.engine.catalog.topic_delete(topic)
        await RetentionEnforcer(there.engine).work()
        with pytest.raises(TopicNotFound):
            await there.publish(text("late", partition=1))
        assert topic.incarnation not in [t.incarnation for t in await here.engine.catalog.topic_deleted()]
