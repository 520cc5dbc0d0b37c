"""Replays of a range through a handler, over every transport: ranges, order, names, errors, batches and rates."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lakelog
from lakelog.client._async.topic import AsyncTopic
from lakelog.errors import Conflict, GroupKindDiffers, GroupNotFound, InvalidName, InvalidRequest, TopicNotFound
from lakelog.model.progress import PartitionProgress

COUNT = 40


@asynccontextmanager
async def topic(url: str, count: int = COUNT, partitions: int = 2) -> AsyncIterator[tuple[Any, AsyncTopic[Any]]]:
    """Yield a client, and a topic with keyed messages."""
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        await orders.create(partitions)
        await fill(orders, 0, count)
        yield log, orders


async def fill(orders: AsyncTopic[Any], first: int, end: int) -> None:
    await orders.publish_many([lakelog.Outgoing({"n": n}, key=f"k{n % 7}") for n in range(first, end)])


def collect(seen: list[int]) -> Callable[[Any], None]:
    def handler(value: Any) -> None:
        seen.append(value["n"])

    return handler


def stop_at(seen: list[int], bad: int) -> Callable[[Any], None]:
    def handler(value: Any) -> None:
        if value["n"] == bad:
            raise ValueError("not this one")
        seen.append(value["n"])

    return handler


def state_of(part: PartitionProgress) -> tuple[int, int, list[tuple[int, str, object]]]:
    """Return the position of a group and its leases, without the times at which they were extended."""
    leases: list[tuple[int, str, object]] = [(lease.token, lease.owner, lease.offsets) for lease in part.leases]
    return part.committed, part.epoch, leases


# The range ------------------------------------------------------------------------------------------------------------


async def test_all_messages_are_handled_once_and_nothing_is_stored(url: str) -> None:
    async with topic(url) as (log, orders):
        seen: list[int] = []
        done = await orders.replay(collect(seen))
        assert sorted(seen) == list(range(COUNT))
        assert (done.handled, done.failed, done.messages, done.remaining, done.is_complete) == (
            COUNT,
            0,
            COUNT,
            0,
            True,
        )
        assert await log.groups() == []


async def test_the_range_is_between_two_times(url: str) -> None:
    async with topic(url, 10, 1) as (_, orders):
        middle = (await orders.fetch(offset=9)).messages[0].appended_at + timedelta(microseconds=1)
        await fill(orders, 10, 20)
        end = (await orders.fetch(offset=19)).messages[0].appended_at + timedelta(microseconds=1)
        await fill(orders, 20, 30)
        seen: list[int] = []
        await orders.replay(collect(seen), since=middle, until=end)
        assert seen == [*range(10, 20)]
        assert (await orders.replay(since=end, until=middle, dry_run=True)).messages == 0


async def test_messages_that_are_published_during_the_replay_are_not_part_of_it(url: str) -> None:
    async with topic(url, 5, 1) as (_, orders):
        seen: list[int] = []

        async def handler(value: Any) -> None:
            seen.append(value["n"])
            await orders.publish({"n": 100})

        done = await orders.replay(handler)
        assert (seen, done.messages) == ([0, 1, 2, 3, 4], 5)


async def test_a_dry_run_counts_and_calls_no_handler(url: str) -> None:
    async with topic(url) as (log, orders):
        found = await orders.replay(dry_run=True, name="audit")
        assert (found.messages, found.remaining, found.handled, found.dry_run) == (COUNT, COUNT, 0, True)
        assert await log.groups() == []


async def test_live_groups_stay_where_they_are(url: str) -> None:
    async with topic(url) as (log, orders), log.consumer("orders", group="billing", start_from="earliest") as live:
        held = await live.batch(10, timeout=20, least=10)
        before = [state_of(each) for each in await log.group("billing").progress("orders")]
        await orders.replay(lambda value: None, name="audit")
        assert [state_of(each) for each in await log.group("billing").progress("orders")] == before
        await held.ack()


# Order and concurrency ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_messages_of_a_key_are_handled_in_order(url: str, concurrency: int) -> None:
    async with topic(url, 200) as (_, orders):
        seen: list[int] = []
        threads: set[int] = set()

        def handler(value: Any, delivery: lakelog.Delivery[Any]) -> None:
            threads.add(threading.get_ident())
            assert (delivery.value, delivery.attempt) == (value, 1)
            seen.append(value["n"])

        done = await orders.replay(handler, concurrency=concurrency)
        assert (sorted(seen), done.handled) == ([*range(200)], 200)
        for key in range(7):
            of_key = [n for n in seen if n % 7 == key]
            assert of_key == sorted(of_key)
        assert threading.get_ident() not in threads


async def test_a_coroutine_handler_gets_typed_values(url: str) -> None:
    async with topic(url, 10) as (log, _):
        seen: list[dict[str, int]] = []

        async def handler(value: dict[str, int], delivery: Any) -> None:
            seen.append(value)
            with pytest.raises(InvalidRequest, match="no answers"):
                await delivery.ack()

        await log.topic("orders", type=dict[str, int]).replay(handler, concurrency=3)
        assert sorted(value["n"] for value in seen) == [*range(10)]


async def test_a_batch_handler_gets_batches_of_one_partition(url: str) -> None:
    async with topic(url) as (_, orders):
        seen: list[tuple[set[int], list[int]]] = []

        def handler(batch: lakelog.Batch[Any]) -> None:
            seen.append(({each.partition for each in batch}, [value["n"] for value in batch.values]))
            with pytest.raises(InvalidRequest, match="no answers"):
                batch.ack()

        done = await orders.replay(handler, batch=8)
        assert all(len(partitions) == 1 and len(values) <= 8 for partitions, values in seen)
        assert sorted(n for _, values in seen for n in values) == [*range(COUNT)]
        assert done.handled == COUNT


async def test_the_rate_is_limited(url: str) -> None:
    async with topic(url, 60, 1) as (_, orders):
        began = time.monotonic()
        await orders.replay(lambda value: None, rate=200)
        assert time.monotonic() - began >= 0.2


# Names ----------------------------------------------------------------------------------------------------------------


async def test_a_replay_with_a_name_continues_where_it_stopped_with_the_same_range(url: str) -> None:
    async with topic(url, 20, 1) as (log, orders):
        seen: list[int] = []
        with pytest.raises(ValueError, match="not this one") as failed:
            await orders.replay(stop_at(seen, 12), name="audit")
        assert failed.value.__notes__ == ["The replay stopped at offset 12 of partition 0 of topic 'orders'."]
        await fill(orders, 20, 25)
        found = await orders.replay(dry_run=True, name="audit")
        assert (found.messages, found.remaining, found.partitions[0].position) == (20, 8, 12)
        done = await orders.replay(collect(seen), name="audit")
        assert (seen, done.handled, done.is_complete) == ([*range(20)], 8, True)
        assert (await orders.replay(collect(seen), name="audit")).handled == 0
        await log.group("replay-audit").delete()
        assert (await orders.replay(collect(seen), name="audit")).handled == 25


async def test_a_replay_that_continues_with_a_later_since_begins_at_its_position(url: str) -> None:
    async with topic(url, 20, 1) as (_, orders):
        seen: list[int] = []
        with pytest.raises(ValueError, match="not this one"):
            await orders.replay(stop_at(seen, 12), name="audit", since=datetime.now(UTC) - timedelta(hours=1))
        await fill(orders, 20, 25)
        later = datetime.now(UTC) + timedelta(hours=1)
        found = await orders.replay(dry_run=True, name="audit", since=later)
        assert (found.remaining, found.partitions[0].position) == (8, 12)
        done = await orders.replay(collect(seen), name="audit", since=later)
        assert (seen, done.handled, done.is_complete) == ([*range(20)], 8, True)


async def test_a_name_belongs_to_one_topic_and_one_process(url: str) -> None:
    async with topic(url, 3, 1) as (log, orders):
        await orders.replay(lambda value: None, name="audit")
        await log.topic("refunds").create()
        with pytest.raises(Conflict, match="of topic 'orders', not of 'refunds'"):
            await log.topic("refunds").replay(lambda value: None, name="audit")
        async with log.consumer("orders", group="replay-leases", start_from="earliest") as live:
            await live.next(timeout=20)
        with pytest.raises(GroupKindDiffers):
            await orders.replay(lambda value: None, name="leases")


async def test_a_second_process_takes_over(url: str) -> None:
    async with topic(url, 30, 1) as (_, orders):
        taken: list[int] = []

        def slow(value: Any) -> None:
            if value["n"] == 3:
                with lakelog.connect(url) as other:
                    other.topic("orders").replay(collect(taken), name="audit")

        with pytest.raises(Conflict, match="Another process runs replay 'audit' of topic 'orders' now"):
            await orders.replay(slow, name="audit")
        assert taken == [*range(30)]


# Errors ---------------------------------------------------------------------------------------------------------------


async def test_on_error_decides_whether_the_replay_continues(url: str) -> None:
    async with topic(url, 10, 1) as (_, orders):
        seen: list[int] = []
        failures: list[tuple[int, str]] = []

        def accept(delivery: lakelog.Delivery[Any], error: Exception) -> None:
            failures.append((delivery.offset, str(error)))

        done = await orders.replay(stop_at(seen, 4), on_error=accept)
        assert (done.handled, done.failed, done.is_complete) == (9, 1, True)
        assert (seen, failures) == ([0, 1, 2, 3, 5, 6, 7, 8, 9], [(4, "not this one")])

        def refuse(delivery: lakelog.Delivery[Any], error: Exception) -> None:
            raise error

        with pytest.raises(ValueError, match="not this one"):
            await orders.replay(stop_at(seen, 4), on_error=refuse)


async def test_a_value_that_cannot_be_decoded_is_an_error_of_its_message(url: str) -> None:
    async with topic(url, 3, 1) as (log, orders):
        await orders.publish(b"no json", content_type="application/json")
        failed: list[int] = []
        typed = log.topic("orders", type=dict[str, int])

        def note(delivery: lakelog.Delivery[Any], error: Exception) -> None:
            failed.append(delivery.offset)

        for options in ({}, {"batch": 10}):
            done = await typed.replay(lambda given: None, on_error=note, **options)
            assert (done.handled, done.failed) == (3, 1)
        assert failed == [3, 3]


async def test_a_batch_can_name_failed_messages(url: str) -> None:
    async with topic(url, 10, 1) as (_, orders):
        failed: list[tuple[int, str]] = []

        def handler(batch: lakelog.Batch[Any]) -> None:
            batch.fail(batch[2], "no such account")

        def note(delivery: lakelog.Delivery[Any], error: lakelog.LakelogError) -> None:
            failed.append((delivery.offset, error.detail))

        done = await orders.replay(handler, batch=10, on_error=note)
        assert (done.handled, done.failed, failed) == (9, 1, [(2, "no such account")])
        with pytest.raises(lakelog.LakelogError, match="no such account"):
            await orders.replay(handler, batch=10)


async def test_progress_is_reported_at_the_end(url: str) -> None:
    async with topic(url, 10, 1) as (_, orders):
        told: list[Any] = []
        done = await orders.replay(lambda value: None, on_progress=told.append)
        assert (told[-1], done.partitions) == (done, ((0, 0, 10, 10),))
        assert repr(done) == "ReplayProgress(topic='orders', handled=10, failed=0, retired=0, remaining=0 of 10)"


async def test_arguments_are_checked(url: str) -> None:
    async with topic(url, 1, 1) as (log, orders):
        with pytest.raises(InvalidRequest, match="needs a `handler`"):
            await orders.replay()
        for wrong in ({"concurrency": 0}, {"batch": 0}, {"rate": 0}, {"since": 3}, {"on_error": 3}, {"on_progress": 3}):
            with pytest.raises(InvalidRequest, match=f"`{next(iter(wrong))}`"):
                await orders.replay(lambda value: None, **wrong)
        with pytest.raises(InvalidName):
            await orders.replay(lambda value: None, name="Not A Name")
        with pytest.raises(TopicNotFound):
            await log.topic("none").replay(lambda value: None, name="audit")
        with pytest.raises(GroupNotFound):
            await log.group("replay-audit").describe()
