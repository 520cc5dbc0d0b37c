"""The functions of a topic that a publish calls, `validate` and `on_publish`: the same over every transport."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakelog
from lakelog.errors import InvalidRequest, PartlyPublished


async def test_the_hook_runs_once_for_each_message_of_every_way_of_publishing(url: str) -> None:
    seen: list[lakelog.Receipt] = []
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t", on_publish=seen.append)
        await topic.create(4)
        receipts = [await topic.publish("a"), *await topic.publish_many(["b", lakelog.Outgoing("c", key="k")])]
        assert seen == receipts
        async with topic.producer() as producer:
            for n in range(50):
                await producer.send(f"p{n}", key=f"k{n % 7}")
            await producer.flush()
            assert len(seen) == 53
        await topic.publish_columns(pa.table({"value": [f"c{n}" for n in range(50)]}))
        stored = {message.id: message.raw async for message in topic.read()}
    assert sorted(receipt.id for receipt in seen) == sorted(stored)
    # The receipts are in the order in which the program published.
    assert [stored[receipt.id] for receipt in seen[3:53]] == [b"p%d" % n for n in range(50)]
    assert [stored[receipt.id] for receipt in seen[53:]] == [b"c%d" % n for n in range(50)]


async def test_the_hook_does_not_run_for_messages_that_failed(url: str) -> None:
    seen: list[lakelog.Receipt] = []
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t", on_publish=seen.append)
        await topic.create()
        with pytest.raises(PartlyPublished):
            async with topic.producer() as producer:
                await producer.send("fits")
                await producer.send("refused", partition=7)
        with pytest.raises(PartlyPublished):
            await topic.publish_columns(pa.table({"value": ["fits", "refused"], "partition": [0, 7]}))
        assert [receipt.id for receipt in seen] == [message.id async for message in topic.read()]
        assert len(seen) == 2


async def test_a_hook_that_fails_is_logged_and_publishing_goes_on(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(receipt: lakelog.Receipt) -> None:
        raise RuntimeError("the hook is broken")

    async with lakelog.connect_async(url) as log:
        topic = log.topic("t", on_publish=fail)
        await topic.create()
        await topic.publish("a")
        await topic.publish_columns(pa.table({"value": ["b"]}))
        async with topic.producer() as producer:
            await producer.send("c")
        assert [message.raw async for message in topic.read()] == [b"a", b"b", b"c"]
    failed = [record for record in caplog.records if "the hook after a publish failed" in record.getMessage()]
    assert len(failed) == 3


async def test_the_validator_checks_every_way_of_publishing(url: str) -> None:
    def check(value: object) -> bool | str:
        return True if isinstance(value, dict) and "total" in value else "total is missing"

    async with lakelog.connect_async(url) as log:
        topic = log.topic("t", validate=check)
        await topic.create()
        with pytest.raises(InvalidRequest, match="total is missing"):
            await topic.publish({})
        with pytest.raises(InvalidRequest, match=r"Message 1: .*total is missing"):
            await topic.publish_many([{"total": 1}, {}])
        async with topic.producer() as producer:
            with pytest.raises(InvalidRequest, match="total is missing"):
                await producer.send({})
        kinds = ["application/json"] * 2
        table = pa.table({"value": ['{"total": 1}', "{}"], "content_type": kinds})
        with pytest.raises(InvalidRequest, match=r"Message 1: .*total is missing") as caught:
            await topic.publish_columns(table)
        assert caught.value.index == 1
        assert [message async for message in topic.read()] == []
        await topic.publish_columns(table.slice(0, 1))
        assert [message.value async for message in topic.read()] == [{"total": 1}]
