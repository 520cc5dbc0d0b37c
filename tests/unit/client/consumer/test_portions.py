"""Messages that a program takes together: objects for single answers exist only where they are needed."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import lakelog
from lakelog.client.consumer.pulled_message import PulledMessage
from lakelog.errors import InvalidRequest
from tests.unit.client.consumer.test_lease_consumer import SOON, lag, pulling
from tests.unit.client.worker.faulty_groups import FaultyLeaseTransport


def objects() -> int:
    """Return how many objects for single answers exist."""
    gc.collect()
    return sum(type(each) is PulledMessage for each in gc.get_objects())


def acked(groups: FaultyLeaseTransport) -> list[int]:
    """Return the number of messages of each ack."""
    return [len(answer.offsets) for call in groups.said for answer in call if answer.verb == "ack"]


@pytest.mark.parametrize("commit", ["manual", "immediate"])
async def test_a_batch_that_is_acked_whole_has_no_object_for_each_message(commit: Any) -> None:
    async with pulling(100, commit=commit) as (found, consumer, groups):
        before = objects()
        for first in (0, 50):
            batch = await consumer.batch(50, timeout=SOON, least=50)
            assert batch.values == list(range(first, first + 50)) and batch.runs == [(0, first, 50)]
            if commit == "manual" or first:
                await batch.ack()
        assert objects() == before
        assert acked(groups) == [50, 50] and await lag(found) == 0


async def test_objects_of_a_batch_that_was_read_and_acked_need_no_garbage_collection() -> None:
    async with pulling(20) as (_, consumer, _groups):
        before = objects()
        gc.disable()
        try:
            batch = await consumer.batch(20, timeout=SOON, least=20)
            assert [each.attempt for each in batch] == [1] * 20
            await batch.ack()
            del batch
            # Another call replaces the last messages of this task.
            assert not await consumer.batch(1, timeout=0)
            assert sum(type(each) is PulledMessage for each in gc.get_objects()) == before
        finally:
            gc.enable()


async def test_messages_of_a_batch_are_answered_one_by_one_and_together() -> None:
    async with pulling(10) as (found, consumer, groups):
        batch = await consumer.batch(10, timeout=SOON, least=10)
        await batch[1].ack()
        await batch[-1].nack(delay=0.0, reason="not now")
        await batch[3:6].ack()
        await batch.extend(60)
        assert [each.value for each in batch[6:8]] == [6, 7]
        await batch.ack()
        again = await consumer.batch(10, timeout=SOON)
        assert [(each.value, each.attempt, each.failures) for each in again] == [(9, 2, 1)]
        await again.ack()
        assert acked(groups) == [1, 3, 5, 1] and await lag(found) == 0


async def test_a_delivery_that_is_made_after_the_ack_has_the_answer_of_its_batch() -> None:
    async with pulling(3) as (_, consumer, groups):
        batch = await consumer.batch(3, timeout=SOON, least=3)
        early = batch[0]
        await batch.ack()
        for delivery in (early, batch[0], batch[2]):
            await delivery.ack()
            with pytest.raises(InvalidRequest, match="already answered, with ack"):
                await delivery.nack()
            with pytest.raises(InvalidRequest, match="already answered"):
                await delivery.extend()
        await batch.ack()
        assert acked(groups) == [3]


async def test_a_batch_smaller_than_its_lease_is_a_part_of_it() -> None:
    async with pulling(10, prefetch=10) as (found, consumer, _):
        first = await consumer.next(timeout=SOON)
        assert first is not None and first.value == 0
        await first.ack()
        for expected in ([1, 2, 3], [4, 5, 6], [7, 8, 9]):
            batch = await consumer.batch(3, timeout=SOON, least=3)
            assert batch.values == expected
            await batch.ack()
        assert await lag(found) == 0


async def test_a_key_of_a_held_batch_is_in_no_other_batch() -> None:
    async with pulling(0, prefetch=10) as (found, consumer, _):
        for value in range(6):
            await found.publish(value, key="ab"[value % 2])
        held = await consumer.batch(2, timeout=SOON, least=2)
        assert held.values == [0, 1]
        assert await consumer.next(timeout=0.05) is None
        await held[0].ack()
        later = await consumer.next(timeout=SOON)
        assert later is not None and later.value == 2
        await held.ack()
        after = await consumer.next(timeout=SOON)
        assert after is not None and after.value == 3
        await later.ack()
        await after.ack()
        last = await consumer.batch(2, timeout=SOON, least=2)
        assert sorted(last.values) == [4, 5]
        await last.ack()
        assert await lag(found) == 0


async def test_a_whole_batch_that_takes_too_long_is_retried() -> None:
    retries = lakelog.Fixed(max=3, seconds=0.01)
    async with pulling(3, ack_timeout=0.3, retries=retries) as (found, consumer, _):
        assert len(await consumer.batch(3, timeout=SOON, least=3)) == 3
        again = await consumer.batch(3, timeout=SOON, least=3)
        assert [(each.value, each.failures) for each in again] == [(0, 1), (1, 1), (2, 1)]
        await again.ack()
        assert await lag(found) == 0


async def test_commit_acks_all_messages_that_the_program_holds_or_one() -> None:
    async with pulling(6) as (found, consumer, groups):
        batch = await consumer.batch(3, timeout=SOON, least=3)
        await consumer.commit()
        assert acked(groups) == [3] and await lag(found) == 3
        batch = await consumer.batch(3, timeout=SOON, least=3)
        await consumer.commit(batch[1])
        assert acked(groups) == [3, 1]
        await consumer.commit()
        assert acked(groups) == [3, 1, 2] and await lag(found) == 0


async def test_a_failed_message_must_be_of_the_batch() -> None:
    async with pulling(4) as (_, consumer, _groups):
        one = await consumer.batch(2, timeout=SOON, least=2)
        other = await consumer.batch(2, timeout=SOON, least=2)
        with pytest.raises(InvalidRequest, match="not in this batch"):
            one.fail(other[0])
        one.fail(one[1], "bad")
        await one.ack()
        await other.ack()
