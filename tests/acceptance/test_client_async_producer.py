"""The producer: the same over every transport."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

import lakelog
from lakelog.errors import Closed, LakelogError, PartlyPublished, TopicNotFound


async def test_everything_is_published_in_order_per_key(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(4)
        async with topic.producer(max_batch=700) as producer:
            for n in range(5_000):
                await producer.send(b"%d" % n, key=b"key-%d" % (n % 37))
        seen: dict[bytes, list[int]] = {}
        async for message in topic.read():
            seen.setdefault(message.key or b"", []).append(int(message.raw or b""))
        assert sorted(itertools.chain(*seen.values())) == list(range(5_000))
        assert all(numbers == sorted(numbers) for numbers in seen.values())


async def test_flush_returns_when_all_is_published(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        # Without the flush nothing would be sent for an hour.
        async with topic.producer(linger=3600) as producer:
            await producer.send("a", headers={"h": "1"})
            await producer.send("b")
            assert producer.buffered == 2
            await producer.flush()
            assert producer.buffered == 0
            messages = (await topic.fetch()).messages
            assert [(message.value, dict(message.headers)) for message in messages] == [("a", {"h": "1"}), ("b", {})]


async def test_a_message_is_sent_after_its_linger_time(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        async with topic.producer(linger=0.01) as producer:
            await producer.send("a")
            assert [message.value for message in (await topic.fetch(wait=20)).messages] == ["a"]


async def test_the_buffer_is_bounded(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        most = 0
        async with topic.producer(max_buffer_bytes=200_000, max_batch=50, linger=0) as producer:
            for _ in range(1_000):
                await producer.send(b"x" * 1_900)
                most = max(most, producer.buffered)
        assert most <= 100
        assert (await topic.describe()).partition_list[0].high_watermark == 1_000


async def test_a_message_larger_than_the_buffer_goes_through(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        async with topic.producer(max_buffer_bytes=10) as producer:
            await producer.send(b"x" * 100)
            await producer.send(b"y" * 100)
        assert (await topic.describe()).partition_list[0].high_watermark == 2


async def test_refused_messages_are_raised_and_reported(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(2)
        reported: list[tuple[LakelogError, Sequence[lakelog.Message]]] = []
        async with topic.producer(linger=3600, on_error=lambda *told: reported.append(told)) as producer:
            await producer.send("good")
            await producer.send("bad", partition=77, headers={"h": "1"})
            with pytest.raises(PartlyPublished) as caught:
                await producer.flush()
            assert [type(result) for result in caught.value.results] == [lakelog.errors.PartitionNotFound]
            [(error, messages)] = reported
            assert isinstance(error, lakelog.errors.PartitionNotFound)
            assert [(m.value, dict(m.headers or {})) for m in messages] == [(b"bad", {"h": "1"})]
            # The error is reported once, and then the producer continues.
            await producer.send("good")
        assert [message.value async for message in topic.read()] == ["good", "good"]


async def test_a_deleted_topic_is_reported(url: str) -> None:
    async with lakelog.connect_async(url) as log, lakelog.connect_async(url) as other:
        topic = log.topic("t")
        await topic.create()
        producer = topic.producer(linger=3600)
        await producer.send("a")
        await other.topic("t").delete()
        with pytest.raises(PartlyPublished) as caught:
            await producer.close()
        assert isinstance(caught.value.__cause__, TopicNotFound)
        assert len(caught.value.results) == 1


async def test_a_recreated_topic_gets_what_was_buffered(url: str) -> None:
    async with lakelog.connect_async(url) as log, lakelog.connect_async(url) as other:
        topic = log.topic("t")
        await topic.create()
        async with topic.producer(linger=3600) as producer:
            await producer.send("old")
            await producer.flush()
            await other.topic("t").delete()
            await other.topic("t").create()
            await producer.send("new")
        assert [message.value async for message in topic.read()] == ["new"]


async def test_partitions_added_under_way_lose_and_double_nothing(url: str) -> None:
    async with lakelog.connect_async(url) as log, lakelog.connect_async(url) as other:
        topic = log.topic("t")
        await topic.create(2)
        async with topic.producer(max_batch=100) as producer:
            for n in range(3_000):
                if n == 1_500:
                    await other.topic("t").alter(partitions=5)
                await producer.send(n, key=n % 50, headers={"n": str(n)} if n % 7 == 0 else None)
        seen: dict[tuple[bytes | None, int], list[int]] = {}
        async for message in topic.read():
            seen.setdefault((message.key, message.partition), []).append(message.value)
        assert sorted(itertools.chain(*seen.values())) == list(range(3_000))
        assert all(numbers == sorted(numbers) for numbers in seen.values())
        assert len({partition for _, partition in seen}) == 5


async def test_a_closed_producer_says_so(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        async with topic.producer() as producer:
            await producer.send("a")
        with pytest.raises(Closed):
            await producer.send("b")
        await producer.close()


async def test_accepted_messages_are_published_although_the_block_fails(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        with pytest.raises(ZeroDivisionError):
            async with topic.producer(linger=3600) as producer:
                await producer.send("a")
                raise ZeroDivisionError
        assert [message.value async for message in topic.read()] == ["a"]
