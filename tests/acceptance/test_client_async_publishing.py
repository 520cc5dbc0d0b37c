"""Publishing through the client: the same over every transport."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pydantic
import pytest

import lakelog
from lakelog.batches import partition_of
from lakelog.errors import (
    IdempotencyConflict,
    InvalidBatch,
    InvalidRequest,
    PartitionNotFound,
    PartlyPublished,
    TooLarge,
)


@dataclass
class DataOrder:
    id: str
    total: int


class ModelOrder(pydantic.BaseModel):
    id: str
    total: int


class StructOrder(msgspec.Struct):
    id: str
    total: int


VALUES: list[tuple[Any, bytes | None, str | None]] = [
    (b"\x00\xff", b"\x00\xff", None),
    (b"", b"", None),
    ("grün", "grün".encode(), "text/plain"),
    ({"a": [1, None, "x"]}, b'{"a":[1,null,"x"]}', "application/json"),
    (17, b"17", "application/json"),
    (None, None, None),
]


async def test_a_value_is_read_back_unchanged(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        ids = [(await topic.publish(value)).id for value, _, _ in VALUES]
        await topic.publish_many(value for value, _, _ in VALUES)
        async with topic.producer() as producer:
            for value, _, _ in VALUES:
                await producer.send(value)
        messages = (await topic.fetch()).messages
        assert [message.offset for message in messages] == list(range(3 * len(VALUES)))
        assert [message.id for message in messages][: len(VALUES)] == ids
        assert [(message.value, message.raw, message.content_type) for message in messages] == VALUES * 3


async def test_everything_that_a_message_carries(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(2)
        begun = datetime.now(UTC)
        given: dict[str, Any] = {
            "key": "k",
            "headers": {"source": "test", "ü": "ß"},
            "partition": 1,
            "correlation_id": "c-1",
            "content_type": "application/x",
            "expires": timedelta(hours=1),
        }
        await topic.publish(b"v", **given, idempotency_key="once")
        await topic.publish_many([lakelog.Outgoing(b"v", **given)])
        async with topic.producer() as producer:
            await producer.send(b"v", **given)
        messages = (await topic.fetch(1)).messages
        assert [message.idempotency_key for message in messages] == ["once", None, None]
        for message in messages:
            assert (message.key, message.key_text) == (b"k", "k")
            assert dict(message.headers) == {"source": "test", "ü": "ß"}
            assert (message.content_type, message.correlation_id) == ("application/x", "c-1")
            assert (message.topic, message.partition) == ("t", 1)
            assert message.created_at is not None
            assert message.expires_at is not None
            assert abs(message.created_at - begun) < timedelta(seconds=30)
            assert timedelta(minutes=59) < message.expires_at - begun < timedelta(minutes=61)
            assert message.appended_at.tzinfo is not None
            assert message.value == b"v"


@pytest.mark.parametrize("kind", [DataOrder, ModelOrder, StructOrder])
async def test_a_typed_topic(url: str, kind: Any) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t", type=kind)
        await topic.create(4, key_field="id")
        order = kind(id="a-1", total=3)
        receipt = await topic.publish(order)
        assert receipt.partition == partition_of(b"a-1", 4)
        async with topic.producer() as producer:
            await producer.send(order)
        messages = (await topic.fetch(receipt.partition)).messages
        assert [message.value for message in messages] == [order, order]
        assert {message.key for message in messages} == {b"a-1"}
        with pytest.raises(InvalidRequest, match="takes"):
            await topic.publish({"id": "a"})
        await log.topic("t").publish(b"not json", partition=receipt.partition)
        broken = (await topic.fetch(receipt.partition, last=1)).messages[0]
        with pytest.raises(InvalidRequest, match="not valid"):
            _ = broken.value
        assert broken.raw == b"not json"


async def test_the_key_is_the_given_one_then_the_function_then_the_field(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        plain = log.topic("t")
        await plain.create(8, key_field="id")
        made = log.topic("t", key=lambda value: value.get("name"))
        await plain.publish({"id": "field"})
        await made.publish({"id": "field", "name": "function"})
        await made.publish({"id": "field", "name": "function"}, key="given")
        await made.publish({"id": 7})
        await made.publish({})
        async with made.producer() as producer:
            await producer.send({"id": "field", "name": "function"})
        keys = sorted([message.key_text or "-" async for message in plain.read()])
        assert keys == ["-", "7", "field", "function", "function", "given"]
        for key in ("field", "function", "given", "7"):
            found = await plain.fetch(partition_of(key.encode(), 8))
            assert key in [message.key_text for message in found.messages]


async def test_a_validator_refuses_before_anything_is_sent(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t", validate=lambda value: True if value > 0 else "must be above zero")
        await topic.create()
        with pytest.raises(InvalidRequest, match="above zero"):
            await topic.publish(-1)
        async with topic.producer() as producer:
            with pytest.raises(InvalidRequest, match="above zero"):
                await producer.send(-1)
            await producer.send(1)
        assert [message.value async for message in topic.read()] == [1]


async def test_an_idempotency_key_has_one_place(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(4)
        first = await topic.publish("a", idempotency_key="k")
        again = await topic.publish("a", idempotency_key="k")
        assert (again.id, again.duplicate) == (first.id, True)
        assert not first.duplicate
        with pytest.raises(IdempotencyConflict, match=r"^Idempotency key 'k' was used in topic 't' for a message with"):
            await topic.publish("b", idempotency_key="k")
        with pytest.raises(PartlyPublished, match="Message 1: Idempotency key 'k' was used in topic 't'") as refused:
            await topic.publish_many(["a", lakelog.Outgoing("b", idempotency_key="k")])
        conflict = refused.value.results[1]
        assert isinstance(conflict, IdempotencyConflict)
        assert (conflict.index, conflict.idempotency_key, conflict.topic) == (1, "k", "t")
        many = await topic.publish_many(
            [lakelog.Outgoing("a", idempotency_key="k"), "plain", lakelog.Outgoing("c", idempotency_key="l")]
        )
        assert (many[0].id, many[0].duplicate) == (first.id, True)
        assert sorted([message.value async for message in topic.read()]) == ["a", "a", "c", "plain"]


async def test_publish_many_says_what_became_of_each(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(2)
        with pytest.raises(PartlyPublished) as caught:
            await topic.publish_many(["a", lakelog.Outgoing("b", partition=9), lakelog.Outgoing("c", partition=1), "d"])
        kinds = [type(result) for result in caught.value.results]
        assert kinds == [lakelog.Receipt, PartitionNotFound, lakelog.Receipt, lakelog.Receipt]
        assert sorted([message.value async for message in topic.read()]) == ["a", "c", "d"]


@pytest.mark.parametrize("values", [{"a": 1}, "abc", b"abc", bytearray(b"a"), ModelOrder(id="a", total=1), 7, None])
async def test_publish_many_refuses_what_is_one_value(values: Any) -> None:
    async with lakelog.connect_async("memory://") as log:
        topic = log.topic("t")
        await topic.create()
        with pytest.raises(InvalidRequest, match=r"publish_many takes a list .*, not .*" + type(values).__name__):
            await topic.publish_many(values)
        assert (await topic.describe()).partition_list[0].high_watermark == 0


async def test_publish_many_says_which_message_cannot_be_published() -> None:
    async with lakelog.connect_async("memory://") as log:
        topic = log.topic("t")
        await topic.create()
        for wrong in (
            object(),
            {"a": float("nan")},
            lakelog.Outgoing("x", partition=-1),
            lakelog.Outgoing("x", key=1.5),
        ):  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match=r"^Message 3: ") as caught:
                await topic.publish_many(["a", None, {"b": None}, wrong])
            assert caught.value.index == 3
        assert (await topic.describe()).partition_list[0].high_watermark == 0, "none of them is published"
        with pytest.raises(PartlyPublished, match=r"1 of 2 messages were not published\. Message 1: ") as refused:
            await topic.publish_many(["a", lakelog.Outgoing("b", partition=7)])
        assert isinstance(refused.value.results[1], PartitionNotFound)


async def test_envelopes_are_refused_as_values() -> None:
    async with lakelog.connect_async("memory://") as log:
        topic = log.topic("t")
        await topic.create()
        for wrong in (lakelog.Outgoing("x", key="k"), lakelog.Message(value=b"x")):
            with pytest.raises(InvalidRequest, match="Publish its content"):
                await topic.publish(wrong)


async def test_publish_many_of_more_than_one_request(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(3)
        receipts = await topic.publish_many(lakelog.Outgoing(b"%d" % n, key=n % 50) for n in range(12_000))
        assert len({(receipt.partition, receipt.offset) for receipt in receipts}) == 12_000
        found = {message.id: message.raw async for message in topic.read()}
        assert [found[receipt.id] for receipt in receipts] == [b"%d" % n for n in range(12_000)]


async def test_equal_messages_are_published_however_well_they_compress(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        async with topic.producer() as producer:
            for _ in range(10_000):
                await producer.send(b"x" * 200, key=b"k")
        assert (await topic.describe()).partition_list[0].high_watermark == 10_000


async def test_columns(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(4)
        count = 25_000
        table = pa.table({"key": [f"k{n % 100}" for n in range(count)], "value": [b"%d" % n for n in range(count)]})
        runs = await topic.publish_columns(table)
        assert sum(run.count for run in runs) == count
        seen: dict[bytes, list[int]] = {}
        async for message in topic.read():
            assert message.key is not None
            assert message.partition == partition_of(message.key, 4)
            seen.setdefault(message.key, []).append(int(message.raw or b""))
        assert sum(map(len, seen.values())) == count
        assert all(numbers == sorted(numbers) for numbers in seen.values())


async def test_columns_with_partitions_and_without_keys(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(4)
        table = pa.table({"value": ["a", "b", "c"], "partition": [2, None, 2]})
        runs = await topic.publish_columns(table.to_batches()[0])
        assert sum(run.count for run in runs) == 3
        assert [message.raw for message in (await topic.fetch(2)).messages][:1] == [b"a"]
        with pytest.raises(InvalidBatch, match="offset"):
            await topic.publish_columns(pa.table({"value": ["a"], "offset": [1]}))
        assert await topic.publish_columns(pa.table({"value": pa.array([], pa.binary())})) == []


async def test_messages_without_a_key_spread_evenly(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(4)
        for _ in range(8):
            await topic.publish("single")
        described = await topic.describe()
        assert [part.high_watermark for part in described.partition_list] == [2, 2, 2, 2]
        async with topic.producer() as producer:
            for _ in range(40_000):
                await producer.send(b"x")
        described = await topic.describe()
        counts = [part.high_watermark for part in described.partition_list]
        assert sum(counts) == 40_008
        # A batch belongs to one partition, and has up to a thousand messages.
        assert max(counts) - min(counts) <= 4_000


async def test_a_message_that_is_too_large_is_refused_alone(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        largest = b"x" * (1 << 20)
        await topic.publish(largest)
        with pytest.raises(TooLarge):
            await topic.publish(largest + b"x")
        async with topic.producer() as producer:
            for _ in range(9):
                await producer.send(largest)
            with pytest.raises(TooLarge):
                await producer.send(largest + b"x")
            with pytest.raises(TooLarge):
                await producer.send(b"", key=b"k" * 1025)
            with pytest.raises(TooLarge):
                await producer.send(b"", headers={str(n): "" for n in range(65)})
        assert (await topic.describe()).partition_list[0].high_watermark == 10
