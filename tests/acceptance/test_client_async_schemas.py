"""Schemas of topics through the client: the same over every transport."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pydantic
import pytest

import lakelog
from lakelog.errors import (
    InvalidRequest,
    InvalidSchema,
    LakelogError,
    PartlyPublished,
    SchemaIncompatible,
    SchemaNotFound,
    SchemaViolation,
)

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "amount": {"type": "number", "minimum": 0}},
    "required": ["id", "amount"],
}
GOOD = {"id": "a", "amount": 1}


@dataclass
class Order:
    id: str
    amount: float
    note: str | None = None


class StructOrder(msgspec.Struct):
    id: str
    amount: float


class PydanticOrder(pydantic.BaseModel):
    id: str = pydantic.Field(alias="orderId", validation_alias=pydantic.AliasChoices("id", "orderId"))
    amount: float = 0


async def test_every_way_of_publishing_is_validated(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        info = await orders.create(2, schema=ORDER)
        assert (info.schema_version, info.compatibility) == (1, "backward")
        await orders.publish(GOOD)
        await orders.publish(None, key="a")
        with pytest.raises(SchemaViolation, match=r"/amount.*schema version 1 of topic 'orders'.*minimum") as caught:
            await orders.publish({"id": "a", "amount": -1})
        error = caught.value
        assert (error.topic, error.field, error.rule, error.schema_version) == ("orders", "/amount", "minimum", 1)
        assert not error.retryable
        with pytest.raises(SchemaViolation) as caught:
            await orders.publish({"id": "a"}, idempotency_key="k")
        assert (caught.value.field, caught.value.rule) == ("/amount", "required")
        for value in ("text", b"bytes"):
            with pytest.raises(SchemaViolation, match="content type"):
                await orders.publish(value)
        values = json.dumps(GOOD), '{"id": 1, "amount": 1}'
        table = pa.table({"value": [each.encode() for each in values], "content_type": ["application/json"] * 2})
        with pytest.raises((SchemaViolation, PartlyPublished), match="/id"):
            await orders.publish_columns(table)
        with pytest.raises((SchemaViolation, PartlyPublished), match="not JSON"):
            await orders.publish(b"{", content_type="application/json")
        read = [message.value async for message in orders.read()]
        assert read.count(GOOD) >= 1 and all(value in (GOOD, None) for value in read)


async def test_the_refusal_of_a_batch_names_the_message_of_the_caller(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        await orders.create(2, schema=ORDER)
        values = [lakelog.Outgoing(GOOD, partition=index % 2) for index in range(10)]
        values[7] = lakelog.Outgoing({"id": 7, "amount": 1}, partition=1)
        with pytest.raises((SchemaViolation, PartlyPublished), match="Message 7: The value at /id") as caught:
            await orders.publish_many(values)
        if isinstance(caught.value, PartlyPublished):
            refused = [each for each in caught.value.results if isinstance(each, LakelogError)]
            assert {getattr(each, "index", None) for each in refused} == {7}
            assert len(refused) == 5, "a batch of one partition is refused as a whole"


async def test_a_change_is_compared_and_numbered(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        await orders.create()
        with pytest.raises(SchemaNotFound, match="lakelog topics schema set orders"):
            await orders.schema()
        with pytest.raises(SchemaNotFound):
            await orders.set_schema(compatibility="full")
        first = await orders.set_schema(ORDER)
        assert (first.version, first.compatibility, first.schema) == (1, "backward", ORDER)
        assert (await orders.set_schema(dict(reversed(ORDER.items())))).version == 1, "an equal schema adds no version"
        stricter = ORDER | {"required": ["id", "amount", "customer"]}
        check = await orders.check_schema(stricter)
        assert not check.compatible and check.version == 1
        assert [(each.path, each.rule) for each in check.changes] == [("/customer", "required")]
        with pytest.raises(SchemaIncompatible, match=r"not backward compatible with version 1.*'customer'.*`none`"):
            await orders.set_schema(stricter)
        assert (await orders.check_schema(stricter, compatibility="forward")).compatible
        second = await orders.set_schema(stricter, compatibility="forward")
        assert (second.version, second.compatibility) == (2, "forward")
        assert [each.version for each in second.versions] == [1, 2]
        with pytest.raises(SchemaViolation, match="version 2"):
            await orders.publish(GOOD)
        assert (await orders.schema(1)).schema == ORDER
        assert (await orders.set_schema(compatibility="none")).version == 2
        assert (await orders.describe()).compatibility == "none"
        await orders.remove_schema()
        await orders.publish("anything")
        assert (await orders.describe()).schema_version is None
        assert (await orders.set_schema(True)).version == 3


async def test_a_schema_is_derived_from_the_type(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        made = PydanticOrder.model_validate({"id": "x", "amount": 2})
        for name, value in (("a", Order("x", 2)), ("b", StructOrder("x", 2)), ("c", made)):
            topic: lakelog.AsyncTopic[Any] = log.topic(name, type=type(value))
            await topic.create(schema="from-type", compatibility="full")
            await topic.publish(value)
            with pytest.raises(SchemaViolation, match="/id"):
                await log.topic(name).publish({"amount": 2})
            assert not (await topic.check_schema("from-type")).changed
        with pytest.raises(InvalidRequest, match="has no type"):
            await log.topic("d").create(schema="from-type")


async def test_the_columns_of_a_topic_become_wider(url: str, tmp_path: Path) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders", type=StructOrder)
        info = await orders.create(columns="from-type")
        assert info.columns is not None
        assert (info.columns.version, str(info.columns)) == (1, "id: string, amount: double")
        (tmp_path / "columns.json").write_text('{"properties": {"note": {"type": "string"}}}')
        await orders.alter(columns=tmp_path / "columns.json")
        await orders.alter(tags=["x"])
        assert (await orders.alter(columns=ORDER)).columns == (wider := (await orders.describe()).columns)
        assert wider is not None
        assert (wider.version, [each.id for each in wider.fields]) == (2, [2000, 2001, 2002])
        with pytest.raises(InvalidSchema, match=r"`v\.id` is string and cannot become long"):
            await orders.alter(columns={"properties": {"id": {"type": "integer"}}})
        with pytest.raises(InvalidSchema, match="need a schema of an object"):
            await orders.alter(columns=True)
        assert (await orders.describe()).columns == wider
        assert (await log.topic("plain").create()).columns is None


async def test_a_schema_that_is_not_accepted_creates_nothing(url: str, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text(json.dumps(ORDER))
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        refused: list[tuple[Any, str]] = [
            ({"type": "strin"}, "not valid at #/type"),
            ({"$ref": "https://example.com/order.json"}, "must refer only to itself"),
            ({"pattern": "(a)\\1"}, "linear time"),
            ({"$ref": "#/$defs/order"}, "does not exist"),
        ]
        for schema, reason in refused:
            with pytest.raises(InvalidSchema, match=reason):
                await orders.create(schema=schema)
        with pytest.raises(InvalidRequest, match=r"pathlib\.Path"):
            await orders.create(schema="order.json")
        with pytest.raises(InvalidRequest, match="one of none, backward"):
            await orders.create(schema=ORDER, compatibility="always")
        assert await log.topics() == []
        await orders.create(schema=file)
        assert (await orders.schema()).schema == ORDER
