"""Adding partitions: every server uses them immediately, keys keep their order, and nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.batches import partition_of
from lakelog.errors import Conflict, EpochChanged, InvalidRequest
from lakelog.model.position import Earliest
from lakelog.model.topic import Topic
from tests.acceptance.engines import Log, Server
from tests.unit.engine.support import stored, text


async def grow(server: Server, partitions: int) -> Topic:
    return await server.engine.topics.alter(server.scope, server.name, partitions=partitions)


async def test_the_new_partitions_are_used_at_once_by_a_server_that_does_not_know_of_them(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(2)
        keys = [str(n).encode() for n in range(40)]
        before = await there.publish(*(text("x", key=key) for key in keys))
        assert [receipt.partition for receipt in before] == [partition_of(key, 2) for key in keys]
        topic = await grow(here, 5)
        assert topic.partitions == 5
        after = await there.publish(*(text("y", key=key) for key in keys))
        assert [receipt.partition for receipt in after] == [partition_of(key, 5) for key in keys]


async def test_a_named_new_partition_is_found_by_a_server_that_does_not_know_of_it(log: Log) -> None:
    async with log.servers(3) as (here, there, third):
        await here.create(1)
        for server in (there, third):
            await server.engine.topics.find(server.scope, server.name)
        await grow(here, 4)
        assert (await there.publish(text("x", partition=3)))[0].offset == 0
        assert [m.value for m in stored(await third.fetch(Earliest(), 3))] == [b"x"]


async def test_an_idempotency_key_in_a_new_partition_is_found_by_a_server_that_does_not_know_of_it(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(1)
        await there.publish(text("a", idempotency_key="old"))
        await grow(here, 4)
        given = [text(str(n), idempotency_key=f"k{n}", partition=n) for n in range(4)]
        first = await here.publish(*given)
        again = await there.publish(*(text(str(n), idempotency_key=f"k{n}") for n in range(4)))
        assert [(r.id, r.duplicate) for r in again] == [(r.id, True) for r in first]
        assert (await there.publish(text("a", idempotency_key="old")))[0].duplicate


async def test_an_older_epoch_is_refused_with_the_new_one_and_nothing_is_written(log: Log) -> None:
    async with log.servers(2) as (here, there):
        old = await here.create(2)
        await there.publish(text("x", partition=0))
        new = await grow(here, 3)
        for server in (there, here):
            (refused,) = await server.answers(text("y", partition=0), epoch=old.epoch)
            assert isinstance(refused, EpochChanged)
            assert (refused.epoch, refused.partitions) == (new.epoch, 3)
        assert await here.values(0) == ["x"]
        assert (await there.answers(text("y", partition=2), epoch=new.epoch))[0].offset == 0  # type: ignore[union-attr]


async def test_an_epoch_that_never_existed_blocks_no_publisher(log: Log) -> None:
    async with log.servers(2) as (here, there):
        topic = await here.create(2)
        for epoch in (topic.epoch + 1, 2**31 - 1, 2**40):
            (refused,) = await here.answers(text("x", partition=0), epoch=epoch)
            assert isinstance(refused, EpochChanged)
        for server in (here, there):
            await server.publish(text("y", partition=0))
        assert await here.values(0) == ["y", "y"]


async def test_publishing_continues_while_partitions_are_added_and_keys_keep_their_order(log: Log) -> None:
    async with log.servers(2) as servers:
        await servers[0].create(1)

        async def publisher(number: int) -> None:
            key = f"key-{number}".encode()
            for n in range(25):
                await servers[number % 2].publish(text(f"{number}-{n}", key=key))

        async def grower() -> None:
            for partitions in (2, 3, 5, 8):
                await grow(servers[partitions % 2], partitions)

        await asyncio.gather(*(publisher(n) for n in range(6)), grower())
        heads = await servers[0].heads()
        assert len(heads) == 8
        found = [value for partition in range(8) for value in await servers[1].values(partition)]
        assert sorted(found) == sorted(f"{number}-{n}" for number in range(6) for n in range(25))
        for partition in range(8):
            for number in range(6):
                own = [int(v.split("-")[1]) for v in await servers[0].values(partition) if v.startswith(f"{number}-")]
                assert own == sorted(own)


async def test_fewer_partitions_are_refused_and_only_one_of_two_changes_wins(log: Log) -> None:
    async with log.servers(2) as servers:
        await servers[0].create(3)
        with pytest.raises(InvalidRequest):
            await grow(servers[1], 2)
        answers = await asyncio.gather(
            *(grow(server, 4 + n) for n, server in enumerate(servers)), return_exceptions=True
        )
        kinds = [type(answer) for answer in answers]
        assert Topic in kinds
        # The call that requests four may also arrive when five exist already.
        assert set(kinds) <= {Topic, Conflict} or kinds == [InvalidRequest, Topic]
        topic = (await servers[0].engine.topics.describe(servers[0].scope, servers[0].name)).topic
        assert topic.partitions == max(a.partitions for a in answers if isinstance(a, Topic))
        assert [head.epoch for head in await servers[1].heads()] == [topic.epoch] * topic.partitions
