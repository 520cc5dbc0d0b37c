"""Tests of the columns of a topic: what a JSON Schema describes, the ids of fields, and the allowed changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import InvalidSchema
from lakelog.model.columns import Column, TopicColumns, walk, widened
from lakelog.segments.typed_values import TypedValues


def columns(present: TopicColumns | None = None, /, **properties: Any) -> TopicColumns:
    return widened(present, {"type": "object", "properties": properties})


INT = {"type": "integer", "format": "int32"}
LONG = {"type": "integer"}
TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (LONG, "long"),
        (INT, "int"),
        ({"type": ["number", "null"]}, "double"),
        ({"type": "number", "format": "float"}, "float"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"enum": ["new", "paid", None]}, "string"),
        ({"anyOf": [{"$ref": "#/$defs/item"}, {"type": "null"}]}, "struct<sku: string>"),
        ({"type": "array", "items": {"$ref": "#/$defs/item"}}, "list<struct<sku: string>>"),
        ({"type": "object", "additionalProperties": LONG}, "map<string, long>"),
        ({"properties": {"a": {"properties": {"b": TEXT}}}}, "struct<a: struct<b: string>>"),
        ({"$ref": "#/$defs/node"}, "struct<name: string>"),
    ],
)
def test_a_schema_describes_a_type(schema: Any, expected: str) -> None:
    node = {"properties": {"name": TEXT, "next": {"$ref": "#/$defs/node"}}}
    defs = {"item": {"properties": {"sku": TEXT}}, "node": node}
    found = widened(None, {"type": "object", "properties": {"f": schema}, "$defs": defs})
    assert str(found) == f"f: {expected}"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": ["string", "integer"]},
        {"anyOf": [TEXT, LONG]},
        {"type": "array"},
        {"type": "array", "prefixItems": [TEXT], "items": TEXT},
        {"type": "object"},
        {"enum": [1, "a"]},
        {"$ref": "#/$defs/missing"},
        {"type": {}},
        {"anyOf": 7},
        {"type": "other"},
    ],
)
def test_a_field_without_a_single_type_has_no_column(schema: Any) -> None:
    assert str(columns(f=schema, id=TEXT)) == "id: string"


def test_ids_never_change() -> None:
    first = columns(id=TEXT, items={"type": "array", "items": {"properties": {"sku": TEXT}}})
    sku = Column(id=2003, name="sku", type="string")
    element = Column(id=2002, name="element", type="struct", fields=(sku,))
    assert first.version == 1
    assert first.fields[1] == Column(id=2001, name="items", type="list", fields=(element,))
    # The order of the schema changes, a field is added inside of another, and one is not mentioned any more.
    items = {"type": "array", "items": {"properties": {"count": INT, "sku": TEXT}}}
    second = columns(first, items=items, total=LONG)
    assert second.version == 2
    assert str(second) == "id: string, items: list<struct<sku: string, count: int>>, total: long"
    assert [second.fields[1].fields[0].fields[at].id for at in (0, 1)] == [2003, 2004]
    assert [each.id for each in second.fields] == [2000, 2001, 2005]
    assert columns(second, id=TEXT) is second


def test_numbers_become_wider() -> None:
    first = columns(n=INT, x={"type": "number", "format": "float"})
    second = columns(first, n=LONG, x={"type": "number"})
    assert str(second) == "n: long, x: double"
    assert [each.id for each in second.fields] == [2000, 2001]
    for bad in (INT, TEXT, {"type": "number"}, {"properties": {"a": TEXT}}):
        with pytest.raises(InvalidSchema, match=r"`v\.n` is long and cannot become"):
            columns(second, n=bad)


_CHAIN = {f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(40)}
_MUTUAL = {f"d{n}": {"properties": {f"p{m}": {"$ref": f"#/$defs/d{m}"} for m in range(8)}} for n in range(8)}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (True, "need a schema of an object"),
        ([], "must be a JSON object"),
        ({"type": "string"}, "need a schema of an object"),
        ({"type": "object", "properties": {"f": {}}}, "need a schema of an object"),
        ({"type": "object", "properties": []}, "need a schema of an object"),
        ({"properties": {"id": TEXT, "Id": TEXT}}, "differ only in case"),
        ({"properties": {"": TEXT}}, "1 to 255 characters"),
        ({"properties": {"a\0": TEXT}}, "without the character 0"),
        ({"properties": {f"f{n}": TEXT for n in range(1001)}}, "at most 1000 fields, not 1001"),
        ({"$ref": "#/$defs/d0", "$defs": _CHAIN}, "nested at most 32 levels"),
        ({"$ref": "#/$defs/d0", "$defs": _MUTUAL}, "describes more"),
    ],
)
def test_columns_that_are_refused(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        widened(None, schema)


_WORDS = st.sampled_from(
    [
        *("type", "properties", "items", "anyOf", "enum", "format", "additionalProperties", "$ref", "$defs"),
        *("prefixItems", "object", "string", "integer", "array", "date", "#", "#/$defs/a", "a", "A", "null", ""),
    ]
)
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | _WORDS | st.sampled_from([LONG, INT, TEXT]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=20,
)
_NAMES = st.sampled_from(["a", "b", "c", "d"])
_TYPES = st.recursive(
    st.sampled_from([LONG, INT, TEXT, {"$ref": "#/$defs/a"}]) | _ANYTHING,
    lambda inner: (
        st.fixed_dictionaries({"properties": st.dictionaries(_NAMES, inner, max_size=3)})
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner})
    ),
    max_leaves=8,
)
_FIELDS = st.dictionaries(_NAMES, _TYPES, max_size=3)
_SCHEMAS = st.fixed_dictionaries({"properties": _FIELDS, "$defs": _FIELDS}) | _ANYTHING


@given(_SCHEMAS, _SCHEMAS)
def test_any_json_is_accepted_or_refused_with_a_reason(first: Any, second: Any) -> None:
    """Also what is accepted can be extended: the ids and types of the first columns stay."""
    try:
        before = widened(None, first)
        after = widened(before, second)
    except InvalidSchema:
        return
    assert [each.id for each in after.fields][: len(before.fields)] == [each.id for each in before.fields]
    assert len({each.id for each in walk(after.fields)}) == len([*walk(after.fields)])
    TypedValues(after)
