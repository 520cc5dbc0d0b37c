"""Tests of the check of a schema that is given."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.errors import InvalidSchema
from lakelog.model.schema import MAX_SCHEMA_BYTES, schema_text


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


_DOUBLED = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(30)}
_CHAIN = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1500)}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:order"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"next": {"$ref": "#/$defs/a"}}}}},
        {"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}},
        {"enum": [{"$ref": "https://example.com/a"}]},
    ],
)
def test_a_schema_without_other_documents_is_accepted(schema: Any) -> None:
    assert schema_text(schema)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("text", "must be a JSON object"),
        (None, "must be a JSON object"),
        ({"const": object()}, "not JSON"),
        ({"description": "x" * MAX_SCHEMA_BYTES}, "the limit is 65536"),
        (_nested(64), "more than 64 levels"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "Use draft 2020-12"),
        ({"$ref": "https://example.com/order.json"}, "never reads schemas from a network"),
        ({"items": {"$ref": "file:///etc/passwd"}}, "`\\$ref` at #/items"),
        ({"properties": {"a": {"$id": "https://example.com/a"}}}, "not accepted inside a schema"),
        ({"items": {"$dynamicRef": "#node"}}, "not accepted inside a schema"),
        ({"$ref": "#/$defs/d0", "$defs": _DOUBLED | {"d30": {}}}, "more than 10000 subschemas"),
        ({"$ref": "#/$defs/d0", "$defs": _CHAIN | {"d1500": {}}}, "chain that is too long"),
    ],
)
def test_a_schema_that_is_not_accepted_says_why(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        schema_text(schema)
