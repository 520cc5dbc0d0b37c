"""Values to bytes: what JSON cannot hold is refused, also where an encoder would write null for it."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

import lakelog
from lakelog.client.publishing.codec import Codec, encode_any
from lakelog.errors import InvalidRequest

NAN, INF = math.nan, math.inf


@dataclass
class DataPrice:
    name: str | None
    prices: list[float]


class ModelPrice(pydantic.BaseModel):
    name: str | None
    prices: list[float]


class StructPrice(msgspec.Struct):
    name: str | None
    prices: list[float]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (NAN, "The value is nan, and JSON has no such number"),
        (-INF, "is -inf"),
        ({"a": 1, "b": {"c": [0.0, None, INF]}}, r"contains inf at b\.c\[2\]"),
        ([1, (2, NAN)], r"at \[1\]\[1\]"),
        (OrderedDict(a=NAN), "nan at a"),
        ({"set": {1.0, NAN}}, "nan at set"),
        ({"price": DataPrice(None, [NAN])}, r"nan at price\.prices\[0\]"),
        ({"price": ModelPrice(name=None, prices=[1, NAN])}, r"nan at price\.prices\[1\]"),
        (StructPrice("x", [INF]), r"inf at prices\[0\]"),
    ],
)
def test_numbers_that_json_does_not_have_are_refused(value: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        encode_any(value)


@pytest.mark.parametrize("kind", [DataPrice, ModelPrice, StructPrice])
def test_typed_values_are_checked_too(kind: Any) -> None:
    codec = Codec(kind)
    raw, _ = codec.encode(kind(name=None, prices=[1.5]))
    assert raw == b'{"name":null,"prices":[1.5]}'
    with pytest.raises(InvalidRequest, match=r"nan at prices\[0\]"):
        codec.encode(kind(name="x", prices=[NAN]))


def test_every_way_to_publish_refuses_them() -> None:
    with lakelog.connect("memory://") as log:
        topic = log.topic("t")
        topic.create()
        with pytest.raises(InvalidRequest, match="nan at a"):
            topic.publish({"a": NAN})
        with topic.producer() as producer, pytest.raises(InvalidRequest, match="nan at a"):
            producer.send({"a": NAN})
        assert topic.describe().partition_list[0].high_watermark == 0


def test_null_and_the_word_null_are_published() -> None:
    for value in ({"a": None, "b": "null", "c": [1.5, {"d": b"x"}], "e": {None}}, [None], "null", {"null": 1}):
        encode_any(value)
