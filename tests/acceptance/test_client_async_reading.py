"""Reading through the client: the same over every transport."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

import lakelog
from lakelog.errors import InvalidRequest, OffsetOutOfRange, PartitionNotFound


async def test_fetch_from_anywhere(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish_many([str(n) for n in range(10)])
        middle = datetime.now(UTC)
        await topic.publish("10")

        async def values(**where: object) -> list[str]:
            return [message.value for message in (await topic.fetch(**where)).messages]  # type: ignore[arg-type]

        assert await values(limit=3) == ["0", "1", "2"]
        assert await values(offset="earliest", limit=1) == ["0"]
        assert await values(offset=8) == ["8", "9", "10"]
        assert await values(last=2) == ["9", "10"]
        assert await values(offset="latest") == []
        assert await values(time=middle) == ["10"]
        assert await values(time=middle + timedelta(days=1)) == []
        page = await topic.fetch(offset=3, limit=2)
        assert (page.next_offset, page.log_start, page.high_watermark) == (5, 0, 11)


async def test_fetch_refuses_what_makes_no_sense(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        with pytest.raises(OffsetOutOfRange):
            await topic.fetch(offset=1)
        with pytest.raises(PartitionNotFound):
            await topic.fetch(7)
        with pytest.raises(InvalidRequest):
            await topic.fetch(offset=1, last=1)
        with pytest.raises(InvalidRequest):
            await topic.fetch(limit=10_001)
        with pytest.raises(InvalidRequest):
            await topic.fetch(time=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_a_waiting_fetch_ends_with_its_time_or_a_message(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        empty = await topic.fetch(wait=timedelta(milliseconds=50))
        assert (list(empty.messages), empty.next_offset) == ([], 0)
        await topic.publish("a")
        assert [message.value for message in (await topic.fetch(wait=20)).messages] == ["a"]


async def test_arrow(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish_many([lakelog.Outgoing(str(n), key=n, headers={"n": str(n)}) for n in range(100)])
        table = await topic.fetch_arrow(offset=10, limit=5)
        assert table.column("offset").to_pylist() == [10, 11, 12, 13, 14]
        assert table.column("partition").to_pylist() == [0] * 5
        assert table.column("value").to_pylist() == [b"10", b"11", b"12", b"13", b"14"]
        assert table.column("key").to_pylist() == [b"10", b"11", b"12", b"13", b"14"]
        assert table.column("headers").to_pylist()[0] == [("n", "10")]
        assert (await topic.fetch_arrow(offset="latest")).schema == table.schema


async def test_reading_all_partitions_to_the_end(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(3)
        await topic.publish_many([lakelog.Outgoing(n, partition=n % 3) for n in range(30)])
        seen = [message async for message in topic.read()]
        assert sorted(message.value for message in seen) == list(range(30))
        for partition in range(3):
            offsets = [message.offset for message in seen if message.partition == partition]
            assert offsets == list(range(10))
        assert len([message async for message in topic.read(from_=2)]) == 6
        assert len([message async for message in topic.read(from_="latest")]) == 0
        assert len([message async for message in topic.read(from_={0: 9, 1: 9, 2: 9})]) == 3


async def test_reading_on_as_messages_arrive(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(3)
        await topic.publish_many([lakelog.Outgoing(n, partition=n % 3) for n in range(6)])
        seen: list[int] = []
        async with aclosing(topic.tail(from_="earliest")) as messages:
            async for message in messages:
                seen.append(message.value)
                if len(seen) == 6:
                    await topic.publish_many([lakelog.Outgoing(n, partition=n % 3) for n in range(6, 12)])
                if len(seen) == 12:
                    break
        assert sorted(seen) == list(range(12))


async def test_a_follower_finds_partitions_that_are_added(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish("first")
        seen = []
        async with aclosing(topic.tail(from_="earliest")) as messages:
            async for message in messages:
                seen.append(message.value)
                if len(seen) == 1:
                    await topic.alter(partitions=3)
                    await topic.publish("second", partition=2)
                if len(seen) == 2:
                    break
        assert seen == ["first", "second"]


async def test_a_follower_says_that_the_topic_is_gone(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish("first")
        with pytest.raises(lakelog.errors.NotFound):
            async with aclosing(topic.tail(from_="earliest")) as messages:
                async for _ in messages:
                    await topic.delete()
