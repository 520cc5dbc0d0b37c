"""Tests of the typed columns of values: `v` and `v_error`."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime

import pyarrow as pa

from lakelog.model.columns import widened
from lakelog.segments.typed_values import TypedValues

SCHEMA = {
    "properties": {
        "id": {"type": "string"},
        "n": {"type": "integer", "format": "int32"},
        "total": {"type": "integer"},
        "price": {"type": "number"},
        "paid": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "raw": {"type": "string", "contentEncoding": "base64"},
        "items": {"type": "array", "items": {"properties": {"sku": {"type": "string"}}}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
}
TYPED = TypedValues(widened(None, SCHEMA))


def test_a_value_with_all_fields() -> None:
    value = {
        "id": "a",
        "n": 2**31 - 1,
        "total": -(2**63),
        "price": 1,
        "paid": True,
        "day": "2026-01-31",
        "at": "2026-01-31T12:00:00+02:00",
        "raw": base64.b64encode(b"\x00\xff").decode(),
        "items": [{"sku": "x", "unknown": 1}, None, {}],
        "counts": {"a": 1, "b": None},
        "unknown": [[]],
    }
    v, error = TYPED.columns_of(pa.array([json.dumps(value).encode()]))
    decoded = {
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 10, tzinfo=UTC),
        "raw": b"\x00\xff",
        "items": [{"sku": "x"}, None, {"sku": None}],
        "counts": [("a", 1), ("b", None)],
    }
    assert v.to_pylist() == [{name: found for name, found in (value | decoded).items() if name != "unknown"}]
    assert error.to_pylist() == [None]


def test_missing_fields_and_missing_values() -> None:
    v, error = TYPED.columns_of(pa.array([b"{}", None, b'{"id": null}'], pa.binary()))
    assert [row and set(row.values()) for row in v.to_pylist()] == [{None}, None, {None}]
    assert error.null_count == 3


def test_times_at_the_ends_of_the_calendar() -> None:
    times = [b'{"at": "0001-01-01T00:00:00+23:59"}', b'{"at": "9999-12-31T23:59:59.999999-23:59"}']
    v, error = TYPED.columns_of(pa.array(times))
    assert v.field("at").null_count == 0
    assert error.null_count == 2


def test_a_value_that_does_not_fit_has_the_reason() -> None:
    refused = {
        b"": "truncated",
        b"\xff": "malformed",
        b"null": "Expected `object`, got `null`",
        b"[]": "Expected `object`, got `array`",
        b"{} {}": "trailing characters",
        b'{"total": "1"}': "$.total",
        b'{"total": 1.5}': "$.total",
        b'{"total": 9223372036854775808}': "$.total",
        b'{"n": 2147483648}': "$.n",
        b'{"price": NaN}': "malformed",
        b'{"paid": 1}': "$.paid",
        b'{"at": "2026-01-31T12:00:00"}': "timezone",
        b'{"items": [{"sku": 1}]}': "$.items[0].sku",
        b'{"id": "\xff"}': "utf-8",
        b"[" * 100_000: "",
    }
    v, error = TYPED.columns_of(pa.array([*refused, b'{"id": "good"}']))
    assert [row and row["id"] for row in v.to_pylist()] == [None] * len(refused) + ["good"]
    for reason, found in zip(refused.values(), error.to_pylist()[:-1], strict=True):
        assert found and reason in found
    assert error[-1].as_py() is None
