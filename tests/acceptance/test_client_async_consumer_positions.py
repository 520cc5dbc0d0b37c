"""Consumers that read by position, over every transport: without a group, of a host, of a cursor group; and seeks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lakelog
from lakelog.client._async.topic import AsyncTopic
from lakelog.errors import InvalidRequest, LeaseLost, NoPosition, NotAssigned
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from tests.kit.waiting import eventually_async

SOON = 20.0
CURSOR: dict[str, Any] = {"group": "etl", "kind": "cursor", "start_from": "earliest"}


@asynccontextmanager
async def topic(url: str, count: int = 0, partitions: int = 1) -> AsyncIterator[tuple[Any, AsyncTopic[Any]]]:
    """Yield a client, and a topic with messages in turn over its partitions."""
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        await orders.create(partitions)
        await fill(orders, 0, count, partitions)
        yield log, orders


async def fill(orders: AsyncTopic[Any], first: int, end: int, partitions: int = 1) -> None:
    if end > first:
        await orders.publish_many([lakelog.Outgoing(n, partition=n % partitions) for n in range(first, end)])


async def taken(consumer: Any, count: int) -> list[int]:
    """Take messages one by one."""
    return [(await consumer.next(timeout=SOON)).value for _ in range(count)]


async def tables_of(consumer: Any, rows: int) -> list[Any]:
    """Take tables with this number of rows, and check that no others follow."""
    tables: list[Any] = []
    async for batch in consumer.arrow(timeout=SOON):
        tables.append(batch.table)
        if sum(table.num_rows for table in tables) >= rows:
            break
    assert [batch async for batch in consumer.arrow(timeout=0.05)] == []
    return tables


async def committed(log: Any) -> list[int]:
    return [each.offset for each in (await log.group("etl").positions("orders")).values()]


# Without a group ------------------------------------------------------------------------------------------------------


async def test_without_a_group_messages_come_from_now_on_and_nothing_is_committed(url: str) -> None:
    async with topic(url, 3) as (log, orders), log.consumer("orders") as consumer:
        await fill(orders, 3, 6)
        assert (consumer.group, await taken(consumer, 3)) == (None, [3, 4, 5])
        assert await consumer.next(timeout=0.05) is None
        with pytest.raises(InvalidRequest, match="commits nothing"):
            await consumer.commit()
        assert await log.groups() == []


async def test_without_a_group_the_start_can_be_chosen(url: str) -> None:
    async with topic(url, 5) as (log, _):
        async with log.consumer("orders", start_from="earliest") as consumer:
            message = await consumer.next(timeout=SOON)
            assert message.value == 0
            with pytest.raises(InvalidRequest, match="no answers"):
                await message.ack()
        async with log.consumer("orders", start_from=3) as consumer:
            assert (await consumer.batch(10, timeout=SOON)).values == [3, 4]
            assert await consumer.next(timeout=0.05) is None
        with pytest.raises(InvalidRequest):
            await log.consumer("orders", start_from="none").next()


@pytest.mark.parametrize("group", [None, {"group": "g", "kind": "cursor"}, {"group": "g"}])
async def test_a_batch_can_be_larger_than_what_is_read_ahead(url: str, group: dict[str, str] | None) -> None:
    options: dict[str, Any] = {"start_from": "earliest", "prefetch": 10, **(group or {})}
    async with topic(url, 50) as (log, _), log.consumer("orders", **options) as consumer:
        batch = await consumer.batch(50, timeout=SOON, least=50)
        assert batch.values == list(range(50))


async def test_columns_without_a_group(url: str) -> None:
    async with topic(url, 6, 2) as (log, _), log.consumer("orders", start_from="earliest") as consumer:
        tables = await tables_of(consumer, 6)
        assert sorted((table.num_rows, table["partition"][0].as_py()) for table in tables) == [(3, 0), (3, 1)]


# A group of this host -------------------------------------------------------------------------------------------------


async def test_a_resumable_consumer_continues_where_this_host_stopped(url: str) -> None:
    async with topic(url) as (log, orders):
        resumable: dict[str, Any] = {"mode": "resumable", "host_id": "Host 1"}
        async with log.consumer("orders", **resumable) as consumer:
            assert consumer.group == "resumable-host-1"
            await fill(orders, 0, 4)
            assert await taken(consumer, 3) == [0, 1, 2]
            await consumer.commit()
        async with log.consumer("orders", **resumable) as consumer:
            assert await taken(consumer, 1) == [3]
        async with log.consumer("orders", mode="resumable", host_id="host-2") as consumer:
            assert await consumer.next(timeout=0.05) is None


# Cursor groups --------------------------------------------------------------------------------------------------------


async def test_immediate_commits_a_message_when_the_next_one_is_asked_for(url: str) -> None:
    async with topic(url, 3) as (log, _), log.consumer("orders", commit="immediate", **CURSOR) as consumer:
        for n in range(3):
            assert await taken(consumer, 1) == [n]
            assert await committed(log) == [n]
        assert await consumer.next(timeout=0) is None
        assert await committed(log) == [3]


async def test_interval_commits_what_was_followed_by_another_call(url: str) -> None:
    async with topic(url, 3) as (log, _), log.consumer("orders", commit_interval=0.05, **CURSOR) as consumer:
        await taken(consumer, 2)

        async def is_committed() -> bool:
            return await committed(log) == [1]

        await eventually_async(is_committed, what="the first message is committed")


async def test_an_interval_of_zero_commits_at_the_end_only(url: str) -> None:
    async with topic(url, 3) as (log, _):
        async with log.consumer("orders", commit_interval=0, **CURSOR) as consumer:
            await taken(consumer, 3)
            assert await committed(log) == [0]
        assert await committed(log) == [2]


async def test_rolling_commits_what_was_returned_long_enough_ago(url: str) -> None:
    async with topic(url, 3) as (log, _):
        rolling: dict[str, Any] = {"commit": "rolling", "commit_interval": 0.2}
        async with log.consumer("orders", **rolling, **CURSOR) as consumer:
            await taken(consumer, 3)

            async def is_committed() -> bool:
                return await committed(log) == [3]

            await eventually_async(is_committed, what="all messages are committed")


async def test_manual_commits_the_message_that_the_program_names(url: str) -> None:
    async with topic(url, 5) as (log, _):
        async with log.consumer("orders", commit="manual", **CURSOR) as consumer:
            messages = [await consumer.next(timeout=SOON) for _ in range(4)]
            await consumer.commit(messages[1])
            assert await committed(log) == [2]
            await consumer.commit(messages[0])
            assert await committed(log) == [2]
            await consumer.commit()
            assert await committed(log) == [4]
            await consumer.next(timeout=SOON)
        assert await committed(log) == [4]


async def redriven(log: Any, group: str) -> None:
    """Let a group fail the first message of the topic, and publish it again for this group."""
    wish = ConsumeRequest(
        topic="orders", group=group, owner="ann", request_id="r", max_messages=1, start_from="earliest"
    )
    (lease,) = (await log.group(group).consume(wish)).leases
    fail = LeaseAnswer(verb=Verb.FAIL, partition=0, token=lease.token, offsets=(0,), reason="no")
    await log.group(group).answer("orders", "ann", [fail])
    assert (await log.topic("orders").dead_letters(group).redrive()).redriven == 1


async def test_a_cursor_group_gets_no_copies_for_other_groups_and_no_expired_messages(url: str) -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    async with topic(url, 2) as (log, orders):
        await redriven(log, "billing")
        await orders.publish(2, expires=long_ago)
        await orders.publish(3, expires=timedelta(hours=1))
        async with log.consumer("orders", commit="immediate", **CURSOR) as consumer:
            assert await taken(consumer, 3) == [0, 1, 3]
            await orders.publish(4, expires=long_ago)

            async def is_committed() -> bool:
                assert await consumer.next(timeout=0.05) is None
                return await committed(log) == [6]

            await eventually_async(is_committed, what="the group has passed the messages that it does not get")
        async with log.consumer("orders", start_from="earliest") as raw:
            assert await taken(raw, 6) == [0, 1, 0, 2, 3, 4]


async def test_columns_of_a_cursor_group_have_no_copies_for_other_groups(url: str) -> None:
    async with topic(url, 1) as (log, orders):
        await redriven(log, "billing")
        await fill(orders, 1, 3)
        async with log.consumer("orders", commit="immediate", **CURSOR) as consumer:
            assert await taken(consumer, 1) == [0]
            tables = await tables_of(consumer, 2)
            assert [table.column("offset").to_pylist() for table in tables] == [[2, 3]]


async def test_partitions_move_to_a_member_that_joins_and_nothing_is_lost(url: str) -> None:
    short: dict[str, Any] = {"session_timeout": 30.0, "heartbeat": 0.1, "commit": "immediate", **CURSOR}
    async with topic(url, 8, 2) as (log, orders), log.consumer("orders", **short) as one:
        seen = await taken(one, 4)
        async with log.consumer("orders", **short) as two:

            async def is_shared() -> bool:
                members = (await log.group("etl").describe()).members
                return sorted(len(each.assigned.get("orders", ())) for each in members) == [1, 1]

            await eventually_async(is_shared, what="each has a partition")
            await fill(orders, 8, 16, 2)
            while len(set(seen)) < 16:
                for consumer in (one, two):
                    found = await consumer.next(timeout=0.2)
                    seen += [] if found is None else [found.value]
        # The last messages before the move were not followed by another call, so they came twice.
        assert set(seen) == set(range(16)) and len(seen) <= 18


async def test_reset_policies_of_a_cursor_group(url: str) -> None:
    async with topic(url, 2) as (log, orders):
        with pytest.raises(NoPosition):
            await log.consumer("orders", group="none", kind="cursor", start_from="none").next()
        async with log.consumer("orders", group="latest", kind="cursor") as consumer:
            await fill(orders, 2, 3)
            assert await taken(consumer, 1) == [2]


# Assign, seek, rewind -------------------------------------------------------------------------------------------------


async def test_a_seek_is_strictly_later_and_a_rewind_is_at_the_offset(url: str) -> None:
    async with topic(url, 3) as (log, orders), log.consumer("orders") as consumer:
        times = [message.appended_at async for message in orders.read()]
        await consumer.seek(times[0] - timedelta(microseconds=1))
        assert await taken(consumer, 1) == [0]
        await consumer.seek(times[-1])
        assert await consumer.next(timeout=0.05) is None
        await consumer.rewind(1)
        assert await taken(consumer, 2) == [1, 2]


async def test_an_assignment_takes_effect_with_the_next_seek_or_rewind(url: str) -> None:
    async with topic(url, 6, 3) as (log, _), log.consumer("orders", start_from="earliest") as consumer:
        consumer.assign("orders", 1)
        assert sorted(await taken(consumer, 6)) == list(range(6))
        await consumer.rewind(0)
        assert await taken(consumer, 2) == [1, 4]
        assert await consumer.next(timeout=0.05) is None
        consumer.unassign("orders", 1)
        with pytest.raises(NotAssigned):
            consumer.unassign("orders", 1)
        with pytest.raises(InvalidRequest, match="does not read"):
            consumer.assign("refunds", 0)
        await consumer.seek(datetime(2020, 1, 1, tzinfo=UTC))
        assert sorted(await taken(consumer, 6)) == list(range(6))
        # Without an assignment, a rewind is one of partition 0.
        await consumer.rewind(0)
        assert await taken(consumer, 2) == [0, 3]


async def test_a_seek_moves_a_cursor_group_and_keeps_its_members(url: str) -> None:
    async with topic(url, 3) as (log, _), log.consumer("orders", commit="immediate", **CURSOR) as consumer:
        assert await taken(consumer, 3) == [0, 1, 2]
        assert await consumer.next(timeout=0) is None
        before = [each.member_id for each in (await log.group("etl").describe()).members]
        await consumer.rewind(1)
        assert await committed(log) == [1]
        assert await taken(consumer, 2) == [1, 2]
        await consumer.seek(datetime(2020, 1, 1, tzinfo=UTC))
        assert await taken(consumer, 1) == [0]
        assert [each.member_id for each in (await log.group("etl").describe()).members] == before


async def test_a_seek_of_another_caller_is_followed(url: str) -> None:
    options: dict[str, Any] = {"heartbeat": 0.05, "commit": "immediate", **CURSOR}
    async with topic(url, 3) as (log, orders), log.consumer("orders", **options) as consumer:
        assert await taken(consumer, 3) == [0, 1, 2]
        await orders.seek("etl", to="earliest")
        assert await taken(consumer, 3) == [0, 1, 2]


async def test_a_seek_moves_a_lease_group_and_ends_its_leases(url: str) -> None:
    async with topic(url, 3) as (log, _), log.consumer("orders", group="g", start_from="earliest") as consumer:
        batch = await consumer.batch(3, timeout=SOON, least=3)
        await batch[0].ack()
        await consumer.seek(batch[0].appended_at - timedelta(microseconds=1))
        with pytest.raises(LeaseLost):
            await batch[1].ack()
        again = await consumer.batch(3, timeout=SOON, least=3)
        assert again.values == [0, 1, 2]
        await consumer.commit()
        assert await log.group("g").lag() == 0
        await consumer.rewind(2)
        assert (await consumer.next(timeout=SOON)).value == 2


async def test_wrong_combinations_are_refused(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        for wrong in (
            {"mode": "load-balanced"},
            {"mode": "real-time", "group": "g"},
            {"mode": "turbo"},
            {"kind": "cursor"},
            {"commit": "interval"},
            {"commit": "often", "group": "g"},
            {"kind": "queue", "group": "g"},
            {"group": "g", "commit": "rolling"},
            {"group": "g", "kind": "cursor", "commit_interval": -1},
        ):
            with pytest.raises(InvalidRequest):
                log.consumer("orders", **wrong)
