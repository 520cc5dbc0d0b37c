"""Topics through the client: the same over every transport."""

from __future__ import annotations

from datetime import timedelta

import pytest

import lakelog
from lakelog.errors import InvalidName, InvalidRequest, TopicExists, TopicNotFound


async def test_a_topic_is_created_and_described(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        made = await orders.create(
            3, key_field="id", max_age=timedelta(days=7), max_count=100, tags=["shop"], metadata={"team": "a"}
        )
        described = await orders.describe()
        assert described.partitions == 3 == len(described.partition_list)
        assert [part.partition for part in described.partition_list] == [0, 1, 2]
        assert described.key_field == "id"
        assert described.retention == lakelog.Retention(max_age=timedelta(days=7), max_count=100)
        assert described.tags == ("shop",)
        assert dict(described.metadata) == {"team": "a"}
        assert described.idempotency_memory == timedelta(hours=24)
        assert described.incarnation == made.incarnation


async def test_creating_twice_is_refused_unless_only_if_missing(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        await orders.create(2)
        with pytest.raises(TopicExists):
            await orders.create(2)
        assert (await orders.create(5, if_missing=True)).partitions == 2


async def test_topics_are_listed_by_name(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        assert await log.topics() == []
        for name in ("b", "a", "c"):
            await log.topic(name).create()
        assert [topic.name for topic in await log.topics()] == ["a", "b", "c"]


async def test_only_given_settings_are_altered(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        before = await orders.create(2, key_field="id", max_age=timedelta(days=1), max_bytes=1000)
        after = await orders.alter(partitions=4, max_bytes=None, tags=["x"])
        assert (after.partitions, after.key_field, after.tags) == (4, "id", ("x",))
        assert after.epoch > before.epoch
        assert after.retention == lakelog.Retention(max_age=timedelta(days=1))
        assert (await orders.alter(key_field=None)).key_field is None
        with pytest.raises(InvalidRequest):
            await orders.alter(partitions=1)


async def test_masks_change_what_people_see_and_not_what_programs_read(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        assert (await orders.create(masks=["value['card']", "key"])).masks == ("value.card", "key")
        assert (await orders.alter(tags=["x"])).masks == ("value.card", "key")
        await orders.publish({"card": 1}, key="k")
        (message,) = (await orders.fetch(0)).messages
        assert (message.key, message.value) == (b"k", {"card": 1})
        with pytest.raises(InvalidRequest, match="must be a list"):
            await orders.alter(masks="key")
        with pytest.raises(InvalidRequest, match=r"must be key, .* not 'offset'"):
            await orders.alter(masks=["offset"])
        assert (await orders.alter(masks=[])).masks == () == (await orders.describe()).masks
        assert (await log.topic("plain").create()).masks == ()


async def test_purge_keeps_offsets_going(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        await orders.create()
        await orders.publish_many(["a", "b", "c"])
        purged = await orders.purge()
        assert purged.removed == 3
        assert (purged.partitions[0].log_start, purged.partitions[0].high_watermark) == (3, 3)
        assert (await orders.publish("d")).offset == 3
        assert [message.value async for message in orders.read()] == ["d"]


async def test_a_recreated_topic_is_another_one(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        first = await orders.create()
        await orders.publish("old")
        await orders.publish("old")
        await orders.delete()
        with pytest.raises(TopicNotFound):
            await orders.publish("nobody")
        second = await orders.create()
        assert second.incarnation != first.incarnation
        receipt = await orders.publish("new")
        assert (receipt.offset, receipt.id.split("-")[0]) == (0, str(second.incarnation))
        assert [message.value async for message in orders.read()] == ["new"]


async def test_a_lane_survives_that_another_client_recreates_the_topic(url: str) -> None:
    async with lakelog.connect_async(url) as log, lakelog.connect_async(url) as other:
        orders, theirs = log.topic("orders"), other.topic("orders")
        await orders.create()
        await orders.publish("old")
        await theirs.delete()
        made = await theirs.create()
        receipt = await orders.publish("new")
        assert (receipt.offset, receipt.id.split("-")[0]) == (0, str(made.incarnation))


async def test_names_are_checked_before_anything_is_sent(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        with pytest.raises(InvalidName):
            log.topic("Orders/../x")
        with pytest.raises(TopicNotFound):
            await log.topic("missing").describe()
