"""Delayed messages: published when they are due, listed and cancelled until then, the same over every transport."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import lakelog
from lakelog.errors import IdempotencyConflict, InvalidRequest, PartlyPublished
from tests.kit.waiting import eventually_async

HOUR = timedelta(hours=1)


async def values(topic: lakelog.AsyncTopic[object]) -> list[object]:
    return [message.value async for message in topic.read()]


async def test_a_delayed_message_is_read_when_it_is_due_and_not_before(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(4)
        receipt = await topic.publish({"n": 1}, key="k", headers={"h": "1"}, correlation_id="c", delay=0.4)
        assert isinstance(receipt, lakelog.ScheduledReceipt)
        assert receipt.offset is None
        found: list[lakelog.ReceivedMessage[object]] = []

        async def look() -> bool:
            found[:] = [message async for message in topic.read()]
            return bool(found)

        await eventually_async(look)
        (message,) = found
        assert (message.value, message.key, message.headers["h"], message.correlation_id) == ({"n": 1}, b"k", "1", "c")
        assert message.partition == receipt.partition
        assert receipt.due_at <= message.appended_at <= receipt.due_at + timedelta(seconds=20)
        status = await log.message(receipt.id)
        assert (status.state, status.partition, status.offset) == ("published", message.partition, message.offset)
        assert await topic.cancel(receipt.id) is False
        assert await topic.scheduled() == []


async def test_waiting_messages_are_listed_by_their_time_and_cancelled_once(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(3)
        at = datetime.now(UTC) + timedelta(days=1)
        late = await topic.publish("late", deliver_at=at)
        soon = await topic.publish({"n": 1}, key="k", delay=HOUR)
        receipts = await topic.publish_many([lakelog.Outgoing(n, delay=2 * HOUR) for n in range(20)])
        waiting = await topic.scheduled()
        assert [each.id for each in waiting[:1]] == [soon.id]
        assert {each.id for each in waiting[1:-1]} == {each.id for each in receipts}
        assert (waiting[-1].id, waiting[-1].due_at, waiting[-1].raw) == (late.id, at, b"late")
        assert (waiting[0].key, waiting[0].raw, waiting[0].content_type) == (b"k", b'{"n":1}', "application/json")
        assert await topic.scheduled(limit=5) == waiting[:5]
        assert [await topic.cancel(soon.id), await topic.cancel(soon.id)] == [True, True]
        assert [(await log.message(each.id)).state for each in (late, soon)] == ["scheduled", "unknown"]
        assert await topic.scheduled() == waiting[1:]
        assert await topic.cancel(f"{soon.id[:-4]}0000") is False
        with pytest.raises(InvalidRequest, match="'1-2-3' is not the id of a delayed message"):
            await topic.cancel("1-2-3")
        assert await values(topic) == []


async def test_every_way_of_publishing_takes_a_delay(url: str) -> None:
    seen: list[lakelog.Receipt] = []
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t", on_publish=seen.append)
        await topic.create(2)
        mixed = ["now", lakelog.Outgoing("later", delay=0.2), lakelog.Outgoing("keyed", delay=0.2, idempotency_key="i")]
        receipts = await topic.publish_many(mixed)
        assert [each.offset is None for each in receipts] == [False, True, True]
        async with topic.producer() as producer:
            await producer.send("sent", delay=timedelta(milliseconds=200), expires=HOUR)
        assert len(seen) == 4

        async def all_there() -> bool:
            return sorted(map(str, await values(topic))) == ["keyed", "later", "now", "sent"]

        await eventually_async(all_there)
        (sent,) = [message async for message in topic.read() if message.value == "sent"]
        assert sent.expires_at is not None
        assert sent.expires_at - sent.appended_at > HOUR - timedelta(seconds=20), "it counts from the delivery"


async def test_an_idempotency_key_counts_from_the_first_call(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(4)
        first = await topic.publish("a", delay=HOUR, idempotency_key="i")
        again = await topic.publish("a", delay=2 * HOUR, idempotency_key="i")
        assert isinstance(first, lakelog.ScheduledReceipt)
        assert isinstance(again, lakelog.ScheduledReceipt)
        assert (again.id, again.due_at, first.duplicate, again.duplicate) == (first.id, first.due_at, False, True)
        with pytest.raises(IdempotencyConflict):
            await topic.publish("b", delay=HOUR, idempotency_key="i")
        assert len(await topic.scheduled()) == 1
        soon = await topic.publish("c", delay=0.1, idempotency_key="j")

        async def is_published() -> bool:
            return await values(topic) == ["c"]

        await eventually_async(is_published)
        late = await topic.publish("c", delay=0.1, idempotency_key="j")
        assert (late.id, late.offset, late.duplicate) == (soon.id, 0, True)


async def test_a_time_that_has_passed_publishes_at_once(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        receipt = await topic.publish("a", deliver_at=datetime.now(UTC) - HOUR)
        assert (type(receipt), receipt.offset) == (lakelog.Receipt, 0)
        assert await values(topic) == ["a"]


async def test_delays_that_are_not_valid_are_refused(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        for delay in (0, -1, timedelta(0), "1", True):
            with pytest.raises(InvalidRequest, match="`delay` must be seconds or a timedelta, above zero"):
                await topic.publish("a", delay=delay)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="`delay` must be at most 366 days"):
            await topic.publish("a", delay=timedelta(days=367))
        with pytest.raises(InvalidRequest, match="A message can be delayed by at most 366 days"):
            await topic.publish("a", deliver_at=datetime.now(UTC) + timedelta(days=367))
        with pytest.raises(InvalidRequest, match="`deliver_at` has no time zone"):
            await topic.publish("a", deliver_at=datetime.now())  # noqa: DTZ005
        with pytest.raises(InvalidRequest, match="Give `delay` or `deliver_at`, not both"):
            await topic.publish("a", delay=1, deliver_at=datetime.now(UTC))
        with pytest.raises(PartlyPublished, match="has partitions 0 to 0, not 7"):
            await topic.publish_many([lakelog.Outgoing("a", delay=1, partition=7)])
        assert await topic.scheduled() == []
