"""The parts of a JSON Schema: its subschemas, references, types, values and limits. It compares no two schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

JsonSchema = dict[str, Any] | bool
"""A JSON Schema (draft 2020-12): an object, or True for every value, or False for none."""
Node = dict[str, Any]
"""A JSON Schema that is an object."""

NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""The keywords whose value holds schemas by name."""
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
SINGLE = (
    "additionalProperties",
    "propertyNames",
    "items",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
)
EVERY_TYPE = frozenset({"null", "boolean", "object", "array", "string", "number"})
"""All types. Every integer is a number."""
_OBJECT_RULES = frozenset({"properties", "patternProperties", "additionalProperties", "unevaluatedProperties"})
_HIGHEST = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_LOWEST = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})


def subschemas(node: Node) -> Iterator[tuple[str, JsonSchema]]:
    """Return the schemas directly inside a schema, with their JSON Pointers relative to it."""
    for keyword in NAMED:
        if isinstance(named := node.get(keyword), dict):
            for name, schema in named.items():
                yield f"/{keyword}/{escaped(name)}", schema
    for keyword in LISTED:
        if isinstance(listed := node.get(keyword), list):
            for index, schema in enumerate(listed):
                yield f"/{keyword}/{index}", schema
    for keyword in SINGLE:
        if keyword in node:
            yield f"/{keyword}", node[keyword]


def escaped(name: str) -> str:
    """Return a name as one step of a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def resolve(root: JsonSchema, reference: str) -> JsonSchema | None:
    """Return the schema that a local reference such as `#/$defs/order` names; None if it is not found."""
    if not reference.startswith("#"):
        return None
    found: Any = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    is_pointer = reference == "#" or reference.startswith("#/")
    return found if is_pointer and isinstance(found, dict | bool) else None


def fingerprint(value: object) -> bytes:
    """Return a text that is the same for equal JSON values: 1 and 1.0 are equal, 1 and true are not."""
    return msgspec.json.encode(_whole(value), order="deterministic")


def _whole(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list) else value


def types_of(node: Node) -> frozenset[str]:
    """Return the types of the values that a schema accepts, by its `type`, `enum` and `const`."""
    declared = declared_types(node)
    listed = listed_values(node)
    if listed is None:
        return declared
    return frozenset(kind for value in listed if includes(declared, kind := type_of(value)))


def declared_types(node: Node) -> frozenset[str]:
    """Return the types in `type`; all if the keyword is missing."""
    given = node.get("type", EVERY_TYPE)
    types = frozenset({given} if isinstance(given, str) else given)
    return types - {"integer"} if "number" in types else types


def includes(types: frozenset[str], kind: str) -> bool:
    """Return whether the types include a type."""
    return kind in types or (kind == "integer" and "number" in types)


def type_of(value: object) -> str:
    """Return the JSON type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    names = {type(None): "null", str: "string", list: "array"}
    return names.get(type(value), "object")


def listed_values(node: Node) -> list[Any] | None:
    """Return the values in `const` and `enum`; None without these keywords."""
    if "const" in node:
        const = fingerprint(node["const"])
        return [node["const"]] if "enum" not in node or const in map(fingerprint, node["enum"]) else []
    return list(node["enum"]) if "enum" in node else None


def values_of(node: Node) -> list[Any] | None:
    """Return all values that the schema can accept, if its `const`, `enum` or `type` leaves a few; otherwise None."""
    types = declared_types(node)
    listed = listed_values(node)
    if listed is not None:
        return [value for value in listed if includes(types, type_of(value))]
    if types <= {"null", "boolean"}:
        return ([None] if "null" in types else []) + ([True, False] if "boolean" in types else [])
    return None


def strongest(node: Node, keyword: str, measure: Callable[[Any], float | None]) -> float | None:
    """Return a limit of the schema, by its keyword and by its values; None without one."""
    pick = max if keyword in _HIGHEST else min
    found = [] if keyword not in node else [node[keyword]]
    values = values_of(node)
    measured = [size for value in values or [] if (size := measure(value)) is not None]
    if measured:
        found.append(min(measured) if keyword in _HIGHEST else max(measured))
    return pick(found) if found else None


def merged(parts: Sequence[Node]) -> tuple[Node, bool]:
    """Return one schema for values that all parts accept, and whether it is exact.

    If it is not exact, it accepts values that one of the parts refuses.
    """
    if len(parts) == 1:
        return parts[0], True
    is_exact = True
    with_rules = [part for part in parts if not _OBJECT_RULES.isdisjoint(part)]
    if len(with_rules) > 1 and any(not {"properties"}.issuperset(_OBJECT_RULES & set(part)) for part in with_rules):
        # `additionalProperties` refers to the properties beside it, so that only the first part keeps its rules.
        first = with_rules[0]
        parts = [part if part is first else _without(part, _OBJECT_RULES) for part in parts]
        is_exact = False
    result: Node = {}
    for part in parts:
        for keyword, value in part.items():
            if keyword not in result:
                result[keyword] = value
            elif fingerprint(result[keyword]) != fingerprint(value):
                both = _both(keyword, result[keyword], value)
                is_exact = is_exact and both is not None
                result[keyword] = result[keyword] if both is None else both
    return result, is_exact


def _both(keyword: str, one: Any, other: Any) -> Any:
    """Return the value of a keyword that means both values; None if there is none."""
    if keyword in _HIGHEST:
        return max(one, other)
    if keyword in _LOWEST:
        return min(one, other)
    if keyword == "required":
        return sorted({*one, *other})
    if keyword == "type":
        first, second = declared_types({"type": one}), declared_types({"type": other})
        return sorted({kind for kind in first | second if includes(first, kind) and includes(second, kind)})
    if keyword == "enum":
        allowed = set(map(fingerprint, other))
        return [value for value in one if fingerprint(value) in allowed]
    if keyword == "properties":
        shared = {name: {"allOf": [one[name], other[name]]} for name in one.keys() & other.keys()}
        return {**one, **other, **shared}
    return None


def _without(node: Node, keywords: frozenset[str]) -> Node:
    return {keyword: value for keyword, value in node.items() if keyword not in keywords}
