"""Tests of the compatibility of two schemas: a table of changes in all modes, and random values as a check."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest

from lakelog.model.kinds import Compatibility
from lakelog.model.schema_comparison import differences
from lakelog.model.schema_nodes import JsonSchema
from lakelog.model.schema_rules import RULES

YES, NO, UNKNOWN = "accepted", "refused", "cannot compare"


def _object(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _closed(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    return _object(required, **properties) | {"additionalProperties": False}


def _field(**schema: Any) -> dict[str, Any]:
    return _object(("x",), x=schema)


TEXT, INTEGER, NUMBER, NULL = ({"type": kind} for kind in ("string", "integer", "number", "null"))
NODE = {"$ref": "#/$defs/node"}


def _tree(**leaf: Any) -> dict[str, Any]:
    """Return a recursive schema."""
    return {"$ref": "#/$defs/node", "$defs": {"node": _object((), left=NODE, right=NODE, leaf=leaf)}}


def _tagged(*tags: str, keyword: str = "oneOf") -> dict[str, Any]:
    return {keyword: [_object(("kind",), kind={"const": tag}) for tag in tags]}


TABLE: list[tuple[str, JsonSchema, JsonSchema, str, str]] = [
    # name, old schema, new schema, backward, forward
    ("nothing", _object(a=TEXT), _object(a=TEXT), YES, YES),
    ("description and title", _field(type="string"), _field(type="string", title="x", description="y"), YES, YES),
    ("format, which is a note", _field(type="string", format="email"), _field(type="string", format="uri"), YES, YES),
    ("default, which is a note", _field(type="integer"), _field(type="integer", default=1), YES, YES),
    ("add an optional field", _object(a=TEXT), _object(a=TEXT, b=TEXT), YES, YES),
    ("add an optional field, closed", _closed(a=TEXT), _closed(a=TEXT, b=TEXT), YES, NO),
    ("add a required field", _object(("a",), a=TEXT), _object(("a", "b"), a=TEXT, b=TEXT), NO, YES),
    ("remove an optional field", _object(a=TEXT, b=TEXT), _object(a=TEXT), YES, YES),
    ("remove an optional field, closed", _closed(a=TEXT, b=TEXT), _closed(a=TEXT), NO, YES),
    ("remove a required field", _object(("a", "b"), a=TEXT, b=TEXT), _object(("a",), a=TEXT), YES, NO),
    ("make a field optional", _object(("a",), a=TEXT), _object(a=TEXT), YES, NO),
    ("make a field required", _object(a=TEXT), _object(("a",), a=TEXT), NO, YES),
    ("rename a required field", _object(("a",), a=TEXT), _object(("b",), b=TEXT), NO, NO),
    ("integer to number", _field(**INTEGER), _field(**NUMBER), YES, NO),
    ("number to integer", _field(**NUMBER), _field(**INTEGER), NO, YES),
    ("text to integer", _field(**TEXT), _field(**INTEGER), NO, NO),
    ("text to text or null", _field(**TEXT), _field(type=["string", "null"]), YES, NO),
    ("text to anyOf text, null", _field(**TEXT), _field(anyOf=[TEXT, NULL]), YES, NO),
    ("type list to anyOf", _field(type=["string", "null"]), _field(anyOf=[TEXT, NULL]), YES, YES),
    ("drop the type", _field(**TEXT), _field(), YES, NO),
    ("add a value to an enum", _field(enum=["a", "b"]), _field(enum=["a", "b", "c"]), YES, NO),
    ("replace a value of an enum", _field(enum=["a", "b"]), _field(enum=["a", "c"]), NO, NO),
    ("enum to text", _field(enum=["a", "b"]), _field(**TEXT), YES, NO),
    ("const to enum", _field(const=1), _field(enum=[1.0, 2]), YES, NO),
    ("const to another const", _field(const="v1"), _field(const="v2"), NO, NO),
    ("enum to anyOf const", _field(enum=["a", "b"]), _field(anyOf=[{"const": "a"}, {"const": "b"}]), YES, YES),
    ("enum to a shorter text", _field(enum=["a", "bb"]), _field(type="string", maxLength=2), YES, NO),
    ("boolean to enum of both", _field(type="boolean"), _field(enum=[True, False]), YES, YES),
    ("lower a minimum", _field(type="number", minimum=1), _field(type="number", minimum=0), YES, NO),
    ("add a maximum", _field(**NUMBER), _field(type="number", maximum=9), NO, YES),
    ("minimum to exclusive", _field(type="number", minimum=0), _field(type="number", exclusiveMinimum=0), NO, YES),
    (
        "same limit of integers",
        _field(type="integer", minimum=1),
        _field(type="integer", exclusiveMinimum=0),
        YES,
        YES,
    ),
    ("multipleOf 10 to 5", _field(type="integer", multipleOf=10), _field(type="integer", multipleOf=5), YES, NO),
    ("multipleOf 0.3 to 0.1", _field(type="number", multipleOf=0.3), _field(type="number", multipleOf=0.1), YES, NO),
    ("longer text", _field(type="string", maxLength=10), _field(type="string", maxLength=20), YES, NO),
    ("add a pattern", _field(**TEXT), _field(type="string", pattern="^a"), NO, YES),
    ("another pattern", _field(type="string", pattern="^a"), _field(type="string", pattern="^b"), UNKNOWN, UNKNOWN),
    ("limit of texts beside numbers", _field(**INTEGER), _field(type="integer", minLength=3), YES, YES),
    ("close an object", _object(a=TEXT), _closed(a=TEXT), NO, YES),
    ("type of other properties", {"additionalProperties": INTEGER}, {"additionalProperties": NUMBER}, YES, NO),
    ("declare one of the others", {"additionalProperties": TEXT}, _object(a=INTEGER), NO, NO),
    ("widen a pattern's schema", {"patternProperties": {"^x": INTEGER}}, {"patternProperties": {"^x": {}}}, YES, NO),
    ("add a pattern of names", {"type": "object"}, {"type": "object", "patternProperties": {"^x": TEXT}}, UNKNOWN, YES),
    ("shorter names", {"propertyNames": {"maxLength": 9}}, {"propertyNames": {"maxLength": 8}}, NO, YES),
    ("more properties", {"minProperties": 2}, {"minProperties": 1}, YES, NO),
    ("required beside another", {"type": "object"}, {"dependentRequired": {"a": ["b"]}}, NO, NO),
    ("wider items", _field(type="array", items=INTEGER), _field(type="array", items=NUMBER), YES, NO),
    ("fewer items", _field(type="array", maxItems=5), _field(type="array", maxItems=4), NO, YES),
    ("unique items", _field(type="array"), _field(type="array", uniqueItems=True), NO, YES),
    (
        "one place in a list",
        _field(type="array", prefixItems=[INTEGER], items=TEXT),
        _field(type="array", prefixItems=[NUMBER], items=TEXT),
        YES,
        NO,
    ),
    ("contains", _field(type="array"), _field(type="array", contains=INTEGER), NO, YES),
    ("a field of a nested object", _field(**_object(a=INTEGER)), _field(**_object(a=TEXT)), NO, NO),
    ("inline to $ref", _field(**TEXT), _field(**{"$ref": "#/$defs/t"}) | {"$defs": {"t": TEXT}}, YES, YES),
    (
        "a definition",
        {"$ref": "#/$defs/t", "$defs": {"t": INTEGER}},
        {"$ref": "#/$defs/t", "$defs": {"t": NUMBER}},
        YES,
        NO,
    ),
    ("a recursive schema, same", _tree(type="integer"), _tree(type="integer", title="leaf"), YES, YES),
    ("a recursive schema, wider", _tree(type="integer"), _tree(type="number"), YES, NO),
    ("a recursive schema, other", _tree(type="integer"), _tree(type="string"), NO, NO),
    ("allOf to one schema", {"allOf": [_object(a=TEXT), {"required": ["a"]}]}, _object(("a",), a=TEXT), YES, YES),
    ("add a part to allOf", {"allOf": [_object(a=TEXT)]}, {"allOf": [_object(a=TEXT), {"required": ["a"]}]}, NO, YES),
    ("add an alternative", {"anyOf": [TEXT]}, {"anyOf": [TEXT, INTEGER]}, YES, NO),
    ("add a tagged alternative", _tagged("a"), _tagged("a", "b"), YES, NO),
    ("anyOf to oneOf with tags", _tagged("a", "b", keyword="anyOf"), _tagged("a", "b"), YES, YES),
    (
        "oneOf whose alternatives overlap",
        {"oneOf": [INTEGER, {"minimum": 3}]},
        {"oneOf": [INTEGER, {"minimum": 2}]},
        UNKNOWN,
        UNKNOWN,
    ),
    ("add not", _field(**TEXT), _field(type="string", **{"not": {"const": "a"}}), UNKNOWN, YES),
    ("the same not", _field(**{"not": NULL}), _field(title="x", **{"not": NULL}), YES, YES),
    ("a condition", {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"type": "object"}, NO, UNKNOWN),
    ("unevaluatedProperties", _object(a=TEXT), _object(a=TEXT) | {"unevaluatedProperties": False}, UNKNOWN, YES),
    ("every value to an object", True, {"type": "object"}, NO, YES),
    ("no value", _object(a=TEXT), False, NO, YES),
    ("forbid a field", _object(a=TEXT), _object(a=False), NO, YES),
]
assert len(TABLE) >= 40


def _verdict(old: JsonSchema, new: JsonSchema, mode: Compatibility) -> str:
    found = differences(old, new, mode)
    if not found:
        return YES
    assert all(each.reason and each.rule for each in found)
    return NO if all(each.is_decided for each in found) else UNKNOWN


@pytest.mark.parametrize(("old", "new", "backward", "forward"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_a_change_is_decided_in_every_mode(old: JsonSchema, new: JsonSchema, backward: str, forward: str) -> None:
    assert _verdict(old, new, Compatibility.NONE) == YES
    assert _verdict(old, new, Compatibility.BACKWARD) == backward
    assert _verdict(old, new, Compatibility.FORWARD) == forward
    full = _verdict(old, new, Compatibility.FULL)
    assert full == (YES if backward == forward == YES else UNKNOWN if UNKNOWN in (backward, forward) else NO)
    assert _verdict(new, old, Compatibility.BACKWARD) == forward, "forward is backward in the other direction"


def test_a_difference_names_the_field_the_rule_and_both_schemas() -> None:
    old = _object((), lines={"type": "array", "items": _object((), count={"type": "integer", "minimum": 0})})
    new = _object((), lines={"type": "array", "items": _object((), count={"type": "integer", "minimum": 1})})
    [found] = differences(old, new, Compatibility.BACKWARD)
    assert (found.path, found.rule) == ("/lines/*/count", "minimum")
    assert found.reason == "the new schema has 1, and the old schema has 0"
    [found] = differences(new, old, Compatibility.FORWARD)
    assert found.reason == "the old schema has 1, and the new schema has 0"


def test_every_keyword_that_asserts_has_a_rule() -> None:
    followed = {"$ref", "allOf", "anyOf", "oneOf", "then", "else", "minContains", "maxContains"}
    vocabularies = {
        *("type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
        *("maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains"),
        *("maxProperties", "minProperties", "required", "dependentRequired"),
        *("prefixItems", "items", "contains", "additionalProperties", "properties", "patternProperties"),
        *("dependentSchemas", "propertyNames", "if", "then", "else", "allOf", "anyOf", "oneOf", "not"),
        *("unevaluatedItems", "unevaluatedProperties", "$ref", "$dynamicRef"),
    }
    assert vocabularies - followed <= set(RULES)


def test_schemas_that_multiply_end_with_cannot_compare() -> None:
    definitions = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(30)
    }
    large = {"$ref": "#/$defs/d0", "$defs": definitions | {"d30": TEXT}}
    [found] = differences(large, {"$ref": "#/$defs/d0", "$defs": definitions | {"d30": NUMBER}}, Compatibility.BACKWARD)
    assert not found.is_decided
    endless = {"anyOf": [{"$ref": "#"}, TEXT]}
    assert _verdict(NUMBER, endless, Compatibility.BACKWARD) == UNKNOWN


def test_no_value_of_the_old_schema_is_refused_after_an_accepted_change() -> None:
    draw = random.Random(1)
    accepted = 0
    for _ in range(3000):
        old, new = _random_schema(draw), _random_schema(draw)
        if draw.random() < 0.5:
            new = _mutated(draw, old)
        if differences(old, new, Compatibility.BACKWARD):
            continue
        accepted += 1
        before, after = jsonschema_rs.Draft202012Validator(old), jsonschema_rs.Draft202012Validator(new)
        for value in _values(draw, old):
            assert not before.is_valid(value) or after.is_valid(value), (old, new, value)
    assert accepted > 200


def _random_schema(draw: random.Random, depth: int = 0) -> dict[str, Any]:
    kinds = ["string", "integer", "number", "null", "boolean", "object", "array"]
    schema: dict[str, Any] = {}
    if draw.random() < 0.8:
        schema["type"] = draw.choice([*kinds, draw.sample(kinds, 2)])
    choices: list[tuple[str, Any]] = [
        ("minimum", draw.randint(0, 3)),
        ("maximum", draw.randint(1, 4)),
        ("exclusiveMinimum", draw.randint(0, 3)),
        ("multipleOf", draw.choice([1, 2, 0.5])),
        ("minLength", draw.randint(0, 3)),
        ("maxLength", draw.randint(1, 4)),
        ("enum", draw.sample([0, 1, 2.0, "a", "bb", None, True], 4)),
        ("const", draw.choice([1, "a", None])),
        ("maxItems", draw.randint(0, 2)),
        ("required", draw.sample(["a", "b"], draw.randint(0, 2))),
        ("minProperties", draw.randint(0, 2)),
        ("additionalProperties", draw.choice([False, True, {"type": "integer"}])),
    ]
    schema |= dict(draw.sample(choices, draw.randint(0, 3)))
    if depth < 2:
        nested: dict[str, Callable[[], Any]] = {
            "properties": lambda: {draw.choice("ab"): _random_schema(draw, depth + 1)},
            "items": lambda: _random_schema(draw, depth + 1),
            "prefixItems": lambda: [_random_schema(draw, depth + 1)],
            **dict.fromkeys(("anyOf", "oneOf", "allOf"), lambda: [_random_schema(draw, depth + 1) for _ in range(2)]),
            "not": lambda: _random_schema(draw, depth + 1),
        }
        for keyword in draw.sample(sorted(nested), draw.randint(0, 2)):
            schema[keyword] = nested[keyword]()
    return schema


def _mutated(draw: random.Random, schema: dict[str, Any]) -> dict[str, Any]:
    changed = {name: value for name, value in schema.items() if draw.random() < 0.8}
    return changed | (_random_schema(draw, 1) if draw.random() < 0.3 else {})


def _values(draw: random.Random, schema: dict[str, Any]) -> list[Any]:
    """Return values whose objects have only properties that the schema declares."""
    plain: list[Any] = [None, True, False, 0, 1, 2, 2.0, 3, 0.5, 5, -1, "", "a", "bb", "dddd", [], {}]
    names = sorted(_declared(schema))
    objects = [{name: draw.choice(plain) for name in names[: draw.randint(0, len(names))]} for _ in range(6)]
    arrays = [draw.choices(plain + objects, k=draw.randint(1, 3)) for _ in range(6)]
    return plain + objects + arrays


def _declared(schema: Any) -> set[str]:
    """Return the names that every object in the schema declares or describes by `additionalProperties`."""
    found = [set(schema.get("properties", {}))] if isinstance(schema, dict) and "properties" in schema else []
    if isinstance(schema, dict) and isinstance(schema.get("additionalProperties"), dict):
        found = [{"a", "b"}]
    return found[0] if found else set()
