"""The types of Spark for classes and JSON Schemas."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from pyspark.sql.types import VariantType

from lakelog.client.schemas import schema_of_type
from lakelog.spark.reading.typed_values import spark_type


class State(StrEnum):
    OPEN = "open"


@dataclass
class Item:
    sku: str
    count: int = 1


class Order(msgspec.Struct):
    id: str
    total: float
    paid: bool
    state: State
    placed: Annotated[datetime, msgspec.Meta(tz=True)]
    due: date | None
    items: list[Item]
    tags: dict[str, str]
    photo: bytes
    exact: Decimal
    anything: Any
    either: int | str
    parent: Order | None = None


class Model(pydantic.BaseModel):
    id: str
    total: int | None = None
    items: list[Model] = []


def test_a_class_becomes_a_struct() -> None:
    found = spark_type(schema_of_type(Order)).simpleString()
    assert found == (
        "struct<id:string,total:double,paid:boolean,state:string,placed:timestamp,due:date,"
        "items:array<struct<sku:string,count:bigint>>,tags:map<string,string>,photo:binary,exact:string,"
        "anything:variant,either:variant,parent:variant>"
    )


def test_a_pydantic_model_becomes_a_struct() -> None:
    assert spark_type(schema_of_type(Model)).simpleString() == "struct<id:string,total:bigint,items:array<variant>>"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["integer", "null"]}, "bigint"),
        ({"type": ["integer", "string"]}, "variant"),
        ({"enum": ["a", None]}, "string"),
        ({"type": "object"}, "map<string,variant>"),
        ({"oneOf": [{"type": "null"}, {"$ref": "#/$defs/A"}], "$defs": {"A": {"type": "string"}}}, "string"),
        ({"$ref": "#/$defs/A"}, "variant"),
        ({}, "variant"),
    ],
)
def test_a_schema_becomes_a_type(schema: dict[str, Any], expected: str) -> None:
    assert spark_type(schema).simpleString() == expected
    assert spark_type(True) == VariantType()
