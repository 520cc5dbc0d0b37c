"""The consumer's loop when answers are lost, messages wait too long, or callers go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import lakelog
from lakelog.errors import LeaseLost
from tests.kit.waiting import eventually_async
from tests.unit.client.worker.faulty_groups import AWAY, LOST, FaultyLeaseTransport
from tests.unit.client.worker.test_worker import topic

SOON = 10.0


@asynccontextmanager
async def pulling(
    count: int, **options: Any
) -> AsyncIterator[tuple[Any, lakelog.AsyncConsumer[Any], FaultyLeaseTransport]]:
    """Yield a topic with messages, a consumer, and the transport that fails."""
    options |= {"group": "g", "start_from": "earliest"}
    async with topic(count) as (log, found, groups), log.consumer("work", **options) as consumer:
        yield found, consumer, groups


async def lag(found: Any) -> int:
    return int(await found.lag("g"))


async def test_the_ack_of_a_batch_goes_with_the_call_for_the_next_one() -> None:
    async with pulling(40, commit="immediate") as (found, consumer, groups):
        for n in range(4):
            assert (await consumer.batch(10, timeout=SOON)).values == list(range(10 * n, 10 * n + 10))
        carried = [sum(len(answer.offsets) for answer in request.answers) for request in groups.requests]
        assert carried == [0, 10, 10, 10]
        assert await lag(found) == 10


async def test_a_lost_reply_brings_the_same_messages_and_a_lost_ack_is_sent_again() -> None:
    async with pulling(3) as (found, consumer, groups):
        groups.consume_faults.append(LOST)
        groups.answer_faults += [AWAY, LOST]
        for n in range(3):
            message = await consumer.next(timeout=SOON)
            assert message is not None and (message.value, message.attempt) == (n, 1)
            await message.ack()
        assert await lag(found) == 0


async def test_messages_that_a_caller_collects_are_not_given_back() -> None:
    async with pulling(1) as (found, consumer, _):
        waiting = asyncio.create_task(consumer.batch(2, least=2, timeout=SOON))
        await asyncio.sleep(0.8)
        await found.publish(1)
        batch = await waiting
        assert [(each.value, each.attempt) for each in batch] == [(0, 1), (1, 1)]


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}], ids=["automatic", "off"])
async def test_a_message_that_arrives_after_its_caller_has_gone_is_given_back(options: dict[str, Any]) -> None:
    async with pulling(0, **options) as (found, consumer, groups):
        assert await consumer.next(timeout=0.01) is None
        await found.publish(0)

        async def is_released() -> bool:
            return any(answer.verb == "release" for answers in groups.said for answer in answers)

        await eventually_async(is_released, what="the message is given back")


async def test_messages_taken_ahead_by_request_are_kept() -> None:
    async with pulling(5, prefetch=4) as (_, consumer, groups):
        first = await consumer.next(timeout=SOON)
        await asyncio.sleep(0.8)
        rest = await consumer.batch(4, timeout=SOON, least=4)
        assert [each.attempt for each in rest] == [1, 1, 1, 1]
        assert first is not None and len(groups.requests) <= 3


async def test_columns_have_the_rest_of_a_lease_whose_first_message_was_taken() -> None:
    async with pulling(5, prefetch=4) as (_, consumer, _):
        message = await consumer.next(timeout=SOON)
        assert message is not None
        await message.ack()
        offsets: list[int] = []
        async for batch in consumer.arrow(timeout=3.0):
            offsets += batch.table.column("offset").to_pylist()
            await batch.ack()
            if len(offsets) == 4:
                break
        assert sorted(offsets) == [1, 2, 3, 4], offsets


async def test_a_cancelled_call_loses_no_message() -> None:
    async with pulling(0) as (found, consumer, _):
        for _ in range(3):
            waiting = asyncio.create_task(consumer.next())
            await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.wait([waiting])
        await found.publish(0)
        message = await consumer.next(timeout=SOON)
        assert message is not None and message.value == 0


async def test_many_tasks_get_each_message_once() -> None:
    async with pulling(200) as (found, consumer, _):
        seen: list[int] = []

        async def work() -> None:
            while len(seen) < 200:
                if (message := await consumer.next(timeout=0.3)) is not None:
                    seen.append(message.value)
                    await message.ack()

        await asyncio.gather(*(work() for _ in range(8)))
        assert sorted(seen) == list(range(200)) and await lag(found) == 0


async def test_with_immediate_each_task_acks_its_own_message() -> None:
    async with pulling(3, commit="immediate") as (found, consumer, _):
        slow = await asyncio.create_task(_kept(consumer))
        for _ in range(2):
            assert await consumer.next(timeout=SOON) is not None
        # The first call of this task acked nothing, the second one the first message of this task.
        assert await lag(found) == 2
        slow.cancel()


async def _kept(consumer: lakelog.AsyncConsumer[Any]) -> asyncio.Task[None]:
    """Start a task that takes a message and works on it for long."""
    taken = asyncio.Event()

    async def work() -> None:
        await consumer.next(timeout=SOON)
        taken.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await taken.wait()
    return task


async def test_a_batch_whose_lease_has_ended_is_not_acked_silently() -> None:
    async with pulling(3) as (found, consumer, _):
        batch = await consumer.batch(3, timeout=SOON, least=3)
        await consumer.rewind(0)
        with pytest.raises(LeaseLost):
            await batch.ack()
        assert await lag(found) == 3


async def test_closing_ends_a_loop_and_the_calls_that_wait() -> None:
    async with topic(0) as (log, _, _groups):
        consumer = log.consumer("work", group="g")
        waiting = asyncio.create_task(_all(consumer))
        await asyncio.sleep(0.05)
        await consumer.close()
        assert await asyncio.wait_for(waiting, SOON) == []


async def _all(consumer: lakelog.AsyncConsumer[Any]) -> list[Any]:
    return [message.value async for message in consumer]
