"""Pull consumers of lease groups, the same over every transport: next, loops, batches, columns, answers, leaving."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import lakelog
from lakelog.client._async.topic import AsyncTopic
from lakelog.errors import Closed, InvalidRequest, LeaseLost, OutOfOrder, TopicNotFound

START: dict[str, Any] = {"group": "g", "start_from": "earliest"}
SOON = 20.0


@dataclass
class Order:
    n: int


@asynccontextmanager
async def topic(url: str, count: int, **settings: Any) -> AsyncIterator[tuple[Any, AsyncTopic[Any]]]:
    """Yield a client, and a topic with messages of different keys."""
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        await orders.create(**settings)
        if count:
            await orders.publish_many([lakelog.Outgoing({"n": n}, key=f"key-{n}") for n in range(count)])
        yield log, orders


async def test_next_returns_messages_until_the_time_is_up(url: str) -> None:
    async with topic(url, 3) as (log, orders), log.consumer("orders", **START) as consumer:
        for n in range(3):
            message = await consumer.next(timeout=SOON)
            assert (message.value, message.topic, message.attempt) == ({"n": n}, "orders", 1)
            await message.ack()
        assert await consumer.next(timeout=0.05) is None
        assert await orders.lag("g") == 0
        await orders.publish({"n": 3})
        message = await consumer.next(timeout=SOON)
        assert message.value == {"n": 3}
        await message.ack()


async def test_a_loop_reads_on_and_may_be_left_and_begun_again(url: str) -> None:
    async with topic(url, 6) as (log, orders), log.consumer("orders", **START) as consumer:
        seen = []
        async for message in consumer:
            seen.append(message.value["n"])
            await message.ack()
            if len(seen) == 3:
                break
        async for message in consumer:
            seen.append(message.value["n"])
            await message.ack()
            if len(seen) == 6:
                break
        assert seen == list(range(6)) and await orders.lag("g") == 0


async def test_a_consumer_has_one_stream(url: str) -> None:
    async with topic(url, 2) as (log, _), log.consumer("orders", **START) as consumer:
        async for message in consumer:
            with pytest.raises(InvalidRequest, match="one stream"):
                await consumer.next(timeout=0)
            with pytest.raises(InvalidRequest, match="one stream"):
                await consumer.batch(2, timeout=0)
            with pytest.raises(InvalidRequest, match="one stream"):
                consumer.__aiter__()
            await message.ack()
            break
        message = await consumer.next(timeout=SOON)
        assert message.value == {"n": 1}


async def test_a_batch_is_acked_with_one_call(url: str) -> None:
    async with topic(url, 50, partitions=2) as (log, orders), log.consumer("orders", **START) as consumer:
        batch = await consumer.batch(50, timeout=SOON, least=50)
        assert sorted(value["n"] for value in batch.values) == list(range(50))
        assert len(batch) == 50 and len(batch[:10]) == 10 and batch[0].value == batch.values[0]
        await batch[:10].ack()
        assert await orders.lag("g") == 40
        await batch.ack()
        assert await orders.lag("g") == 0
        assert len(await consumer.batch(10, timeout=0.05)) == 0


async def test_a_batch_with_failures_is_answered_in_parts(url: str) -> None:
    async with topic(url, 4) as (log, orders), log.consumer("orders", retries=0, **START) as consumer:
        batch = await consumer.batch(4, timeout=SOON, least=4)
        await batch[1].nack(reason="bad")
        await batch[2].discard(reason="not ours")
        await batch.ack()
        (progress,) = await log.group("g").progress()
        assert (progress.acked, progress.discarded, progress.dead) == (2, 1, 1)
        assert await orders.lag("g") == 0


async def test_columns_are_acked_as_a_whole(url: str) -> None:
    async with topic(url, 30, partitions=2) as (log, orders), log.consumer("orders", **START) as consumer:
        rows = 0
        async for batch in consumer.arrow(10, timeout=SOON):
            assert (batch.topic, len(batch)) == ("orders", batch.table.num_rows)
            assert pa.table(batch).column_names[:3] == ["partition", "offset", "appended_at"]
            rows += len(batch)
            await batch.ack()
            if rows == 30:
                break
        assert [batch async for batch in consumer.arrow(10, timeout=0.05)] == []
        assert rows == 30 and await orders.lag("g") == 0


async def test_immediate_acks_when_the_next_one_is_asked_for(url: str) -> None:
    async with topic(url, 3) as (log, orders):
        async with log.consumer("orders", commit="immediate", **START) as consumer:
            assert (await consumer.next(timeout=SOON)).value == {"n": 0}
            assert await orders.lag("g") == 3
            assert (await consumer.next(timeout=SOON)).value == {"n": 1}
            assert (await consumer.next(timeout=SOON)).value == {"n": 2}
        # The last one was not followed by another call, so it is given back.
        assert await orders.lag("g") == 1


async def test_leaving_gives_back_what_has_no_answer_without_counting_a_failure(url: str) -> None:
    async with topic(url, 20) as (log, _):
        async with log.consumer("orders", prefetch=10, **START) as consumer:
            message = await consumer.next(timeout=SOON)
            await message.ack()
            await consumer.next(timeout=SOON)
        with pytest.raises(Closed):
            await consumer.next()
        async with log.consumer("orders", **START) as other:
            batch = await other.batch(19, timeout=SOON, least=19)
            assert sorted(value["n"] for value in batch.values) == list(range(1, 20))
            assert {each.failures for each in batch} == {0}


async def test_a_nacked_message_comes_again_and_later_ones_of_its_key_after_it(url: str) -> None:
    async with topic(url, 0) as (log, orders):
        await orders.publish_many([lakelog.Outgoing({"n": n}, key="one") for n in range(3)])
        async with log.consumer("orders", **START) as consumer:
            batch = await consumer.batch(3, timeout=SOON, least=3)
            await batch[0].nack(delay=0.0, reason="again")
            with pytest.raises(LeaseLost):
                await batch[1].ack()
            seen = []
            while len(seen) < 3:
                message = await consumer.next(timeout=SOON)
                seen.append((message.value["n"], message.failures))
                await message.ack()
            assert seen == [(0, 1), (1, 0), (2, 0)]


async def test_next_waits_for_the_answer_to_the_message_of_the_same_key(url: str) -> None:
    async with topic(url, 0) as (log, orders):
        await orders.publish_many([lakelog.Outgoing({"n": n}, key="one") for n in range(2)])
        async with log.consumer("orders", prefetch=10, **START) as consumer:
            first = await consumer.next(timeout=SOON)
            assert await consumer.next(timeout=0.05) is None
            await first.ack()
            second = await consumer.next(timeout=SOON)
            assert second.value == {"n": 1}
            await second.ack()


async def test_an_answer_out_of_order_can_be_given_later(url: str) -> None:
    async with topic(url, 0) as (log, orders):
        await orders.publish_many([lakelog.Outgoing({"n": n}, key="one") for n in range(2)])
        async with log.consumer("orders", **START) as consumer:
            batch = await consumer.batch(2, timeout=SOON, least=2)
            with pytest.raises(OutOfOrder):
                await batch[1].ack()
            await batch[0].ack()
            await batch[1].ack()
            assert await orders.lag("g") == 0


async def test_several_topics_share_a_consumer_each_with_its_type(url: str) -> None:
    async with topic(url, 2) as (log, _):
        refunds = log.topic("refunds", type=Order)
        await refunds.create()
        await refunds.publish_many([Order(n) for n in range(2)])
        async with log.consumer("orders", refunds, **START) as consumer:
            seen = []
            while len(seen) < 4:
                message = await consumer.next(timeout=SOON)
                seen.append((message.topic, message.value))
                await message.ack()
        assert [value for name, value in seen if name == "orders"] == [{"n": 0}, {"n": 1}]
        assert [value for name, value in seen if name == "refunds"] == [Order(0), Order(1)]


async def test_consumers_share_the_messages_of_a_group(url: str) -> None:
    async with topic(url, 40) as (log, orders):
        async with log.consumer("orders", **START) as one, log.consumer("orders", **START) as two:
            first, second = await one.batch(10, timeout=SOON), await two.batch(30, timeout=SOON, least=30)
            seen = [value["n"] for value in first.values + second.values]
            assert sorted(seen) == list(range(40))
            await first.ack()
            await second.ack()
        assert await orders.lag("g") == 0


async def test_a_message_without_an_answer_has_failed_after_its_time(url: str) -> None:
    async with topic(url, 1) as (log, _), log.consumer("orders", ack_timeout=0.3, **START) as consumer:
        held = await consumer.next(timeout=SOON)
        again = await consumer.next(timeout=SOON)
        await again.ack()
        assert (again.value, again.failures) == (held.value, 1)
        with pytest.raises((LeaseLost, InvalidRequest)):
            await held.ack()


async def test_a_missing_topic_and_wrong_arguments_are_refused(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        with pytest.raises(TopicNotFound):
            await log.consumer("missing", group="g").next()
        for wrong in ({"commit": "rolling"}, {"prefetch": -1}, {"filter": "("}, {"ack_timeout": 0}, {"order": "x"}):
            with pytest.raises(InvalidRequest):
                log.consumer("orders", group="g", **wrong)
        with pytest.raises(InvalidRequest, match="twice"):
            log.consumer("orders", "orders", group="g")
        with pytest.raises(InvalidRequest, match="topics"):
            log.consumer(group="g")


async def test_closing_the_client_gives_back_what_a_consumer_holds(url: str) -> None:
    async with topic(url, 2) as (log, orders):
        async with lakelog.connect_async(url) as other:
            consumer = other.consumer("orders", **START)
            await consumer.next(timeout=SOON)
        async with log.consumer("orders", **START) as again:
            batch = await again.batch(2, timeout=SOON, least=2)
            await batch.ack()
        assert await orders.lag("g") == 0
