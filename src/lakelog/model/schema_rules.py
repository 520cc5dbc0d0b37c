"""The rules that compare two JSON Schemas keyword by keyword.

A rule gets a schema with the values to accept, the source, and a schema with the rule's keyword, the target. It returns
the reasons why the target may refuse a value of the source. `schema_comparison` follows references and alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec

from lakelog.model.schema_nodes import (
    JsonSchema,
    Node,
    declared_types,
    escaped,
    fingerprint,
    includes,
    listed_values,
    strongest,
    types_of,
    values_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A reason why one schema may refuse a value that another accepts.

    Attributes:
        path: The field, as a JSON Pointer into a value; `*` is any item or any other property.
        rule: The keyword of JSON Schema.
        reason: The difference, in words.
        is_decided: False if the two schemas cannot be compared here.
    """

    path: str
    rule: str
    reason: str
    is_decided: bool = True


Compare = Callable[[JsonSchema, JsonSchema, str], list[Difference]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Two schemas at one field, with the words for them."""

    source: Node
    target: Node
    path: str
    source_name: str
    target_name: str
    compare: Compare
    is_same: Callable[[object, object], bool]
    """Returns whether two parts of the schemas are equal and mean the same."""

    def refused(self, rule: str, reason: str) -> Difference:
        """Return the difference that the target refuses a value of the source."""
        return Difference(path=self.path, rule=rule, reason=reason)

    def undecided(self, rule: str) -> Difference:
        """Return the difference that the rule cannot be compared."""
        reason = f"cannot compare `{rule}` of {self.target_name} with {self.source_name}"
        return Difference(path=self.path, rule=rule, reason=reason, is_decided=False)

    def has(self, kind: str) -> bool:
        """Return whether the source accepts values of a type."""
        types = types_of(self.source)
        return kind in types or (kind == "number" and "integer" in types)


Rule = Callable[[Sides, str], Iterator[Difference]]


def apply_rules(sides: Sides) -> list[Difference]:
    """Return the reasons why the target may refuse a value of the source, by all keywords but references."""
    found: list[Difference] = []
    for keyword, (kind, rule) in RULES.items():
        if keyword in sides.target and (kind is None or sides.has(kind)):
            found.extend(rule(sides, keyword))
    return found


def _type(sides: Sides, keyword: str) -> Iterator[Difference]:
    allowed = declared_types(sides.target)
    extra = sorted(kind for kind in types_of(sides.source) if not includes(allowed, kind))
    if extra:
        yield sides.refused(
            keyword, f"{sides.target_name} does not accept {' or '.join(extra)}, and {sides.source_name} does"
        )


def _values(sides: Sides, keyword: str) -> Iterator[Difference]:
    given = values_of(sides.source)
    allowed = listed_values({keyword: sides.target[keyword]}) or []
    if given is None:
        yield sides.refused(
            keyword, f"{sides.target_name} accepts only {_shown(allowed)}, and {sides.source_name} other values too"
        )
        return
    known = set(map(fingerprint, allowed))
    extra = [value for value in given if fingerprint(value) not in known]
    if extra:
        yield sides.refused(
            keyword, f"{sides.target_name} does not accept {_shown(extra)}, and {sides.source_name} does"
        )


def _shown(values: list[Any]) -> str:
    more = f" and {len(values) - 5} more" if len(values) > 5 else ""
    return ", ".join(msgspec.json.encode(value).decode()[:40] for value in values[:5]) + more


def _limit(measure: Callable[[Any], float | None]) -> Rule:
    """Return the rule for a limit of lengths or counts."""

    def rule(sides: Sides, keyword: str) -> Iterator[Difference]:
        wanted = sides.target[keyword]
        if keyword.startswith("min") and wanted <= 0:
            return
        given = strongest(sides.source, keyword, measure)
        if keyword == "minProperties":
            given = max(given or 0, len(sides.source.get("required", ())))
        if not _is_within(keyword, given, wanted):
            yield _limit_differs(sides, keyword, given)

    return rule


def _is_within(keyword: str, given: float | None, wanted: float) -> bool:
    return given is not None and (given >= wanted if keyword.startswith("min") else given <= wanted)


def _limit_differs(sides: Sides, keyword: str, given: float | None) -> Difference:
    theirs = "no limit" if given is None else f"{given:g}"
    return sides.refused(
        keyword, f"{sides.target_name} has {sides.target[keyword]:g}, and {sides.source_name} has {theirs}"
    )


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _range(sides: Sides, keyword: str) -> Iterator[Difference]:
    """Compare a limit of numbers. For whole numbers, above 0 is the same as from 1."""
    is_lower = "inimum" in keyword
    plain, strict = ("minimum", "exclusiveMinimum") if is_lower else ("maximum", "exclusiveMaximum")
    source = sides.source
    is_whole = "number" not in types_of(source)
    limits = [(limit, False) for limit in [strongest(source, plain, _number)] if limit is not None]
    if strict in source:
        limits.append(_strict_limit(source[strict], is_lower, is_whole))
    wanted, is_strict = sides.target[keyword], keyword == strict
    if not any(_is_inside(limit, excluded, wanted, is_strict, is_lower) for limit, excluded in limits):
        given = source.get(keyword, limits[0][0] if limits else None)
        yield _limit_differs(sides, keyword, given)


def _strict_limit(limit: float, is_lower: bool, is_whole: bool) -> tuple[float, bool]:
    if not is_whole:
        return limit, True
    return (math.floor(limit) + 1 if is_lower else math.ceil(limit) - 1), False


def _is_inside(limit: float, excluded: bool, wanted: float, is_strict: bool, is_lower: bool) -> bool:
    if limit == wanted:
        return excluded or not is_strict
    return limit > wanted if is_lower else limit < wanted


def _multiple(sides: Sides, keyword: str) -> Iterator[Difference]:
    wanted = Fraction(str(sides.target[keyword]))
    given = Fraction(str(sides.source[keyword])) if keyword in sides.source else None
    if given is None and "number" not in types_of(sides.source):
        given = Fraction(1)
    values = values_of(sides.source)
    if values is not None:
        numbers = [Fraction(str(number)) for value in values if (number := _number(value)) is not None]
        is_multiple = all(number % wanted == 0 for number in numbers)
    else:
        is_multiple = given is not None and given % wanted == 0
    if not is_multiple:
        yield _limit_differs(sides, keyword, sides.source.get(keyword))


def _same(sides: Sides, keyword: str) -> Iterator[Difference]:
    """Accept a keyword that both schemas have with the same value; its meaning is not compared."""
    if keyword == "pattern" and keyword not in sides.source and values_of(sides.source) is None:
        yield sides.refused(keyword, f"{sides.target_name} has `{keyword}`, and {sides.source_name} does not")
    elif not sides.is_same(sides.source.get(keyword), sides.target[keyword]):
        yield sides.undecided(keyword)


def _condition(sides: Sides, keyword: str) -> Iterator[Difference]:
    parts = [{name: side.get(name) for name in ("if", "then", "else")} for side in (sides.source, sides.target)]
    if not sides.is_same(*parts):
        yield sides.undecided(keyword)


def _unevaluated(sides: Sides, keyword: str) -> Iterator[Difference]:
    """Refuse to compare: the keyword depends on all keywords beside it."""
    if sides.target[keyword] is not True:
        yield sides.undecided(keyword)


def _unique(sides: Sides, keyword: str) -> Iterator[Difference]:
    source = sides.source
    if sides.target[keyword] and not source.get(keyword) and source.get("maxItems", 2) > 1:
        yield sides.refused(keyword, f"{sides.target_name} refuses equal items, and {sides.source_name} accepts them")


def _contains(sides: Sides, keyword: str) -> Iterator[Difference]:
    source, target = sides.source, sides.target
    least, most = target.get("minContains", 1), target.get("maxContains")
    if least == 0 and most is None:
        return
    if keyword not in source:
        yield sides.refused(keyword, f"{sides.target_name} has `contains`, and {sides.source_name} does not")
    elif not sides.is_same(source[keyword], target[keyword]):
        yield sides.undecided(keyword)
    elif source.get("minContains", 1) < least or (most is not None and source.get("maxContains", math.inf) > most):
        yield sides.refused(keyword, f"{sides.target_name} limits the items that `contains` counts further")


def _required(sides: Sides, keyword: str) -> Iterator[Difference]:
    for name in sorted(set(sides.target[keyword]) - set(sides.source.get(keyword, ()))):
        reason = f"{sides.target_name} requires {name!r}, and {sides.source_name} does not"
        yield Difference(path=f"{sides.path}/{escaped(name)}", rule=keyword, reason=reason)


def _dependent(sides: Sides, keyword: str) -> Iterator[Difference]:
    always, given = set(sides.source.get("required", ())), sides.source.get(keyword, {})
    for name, needed in sides.target[keyword].items():
        if set(needed) - always - set(given.get(name, ())):
            yield sides.refused(
                keyword, f"{sides.target_name} requires more beside {name!r} than {sides.source_name} does"
            )


def _properties(sides: Sides, keyword: str) -> Iterator[Difference]:
    """Compare properties that both schemas declare. A property that only one declares is assumed to be unused."""
    source, target = sides.source, sides.target
    declared: dict[str, JsonSchema] = source.get("properties", {})
    for name, wanted in target["properties"].items():
        path = f"{sides.path}/{escaped(name)}"
        if name in declared:
            yield from sides.compare(declared[name], wanted, path)
            continue
        if isinstance(others := source.get("additionalProperties"), dict):
            yield from sides.compare(others, wanted, path)
        for pattern, schema in source.get("patternProperties", {}).items():
            if sides.compare(schema, wanted, path):
                reason = f"cannot compare it with the pattern {pattern!r} of {sides.source_name}"
                yield Difference(path=path, rule="patternProperties", reason=reason, is_decided=False)


def _additional(sides: Sides, keyword: str) -> Iterator[Difference]:
    source, target = sides.source, sides.target
    wanted = target[keyword]
    if wanted is True or wanted == {}:
        return
    known = target.get("properties", {})
    for name, schema in source.get("properties", {}).items():
        if name not in known and schema is not False:
            yield from _fallen(sides, name, schema, wanted)
    for pattern, schema in source.get("patternProperties", {}).items():
        if pattern not in target.get("patternProperties", {}):
            yield from sides.compare(schema, wanted, f"{sides.path}/*")
    others = source.get(keyword, True)
    if wanted is False and others is not False:
        reason = f"{sides.target_name} refuses properties that it does not declare, and {sides.source_name} does not"
        yield Difference(path=f"{sides.path}/*", rule=keyword, reason=reason)
    elif others is not False:
        yield from sides.compare(others, wanted, f"{sides.path}/*")


def _fallen(sides: Sides, name: str, schema: JsonSchema, wanted: JsonSchema) -> Iterator[Difference]:
    """Compare a property that only the source declares with the rule for undeclared properties."""
    path = f"{sides.path}/{escaped(name)}"
    has_patterns = bool(sides.target.get("patternProperties"))
    if wanted is not False:
        yield from sides.compare(schema, wanted, path)
    elif has_patterns:
        reason = f"cannot tell if a pattern of {sides.target_name} matches {name!r}"
        yield Difference(path=path, rule="patternProperties", reason=reason, is_decided=False)
    else:
        reason = f"{sides.target_name} refuses {name!r}, which {sides.source_name} declares"
        yield Difference(path=path, rule="additionalProperties", reason=reason)


def _patterns(sides: Sides, keyword: str) -> Iterator[Difference]:
    given = sides.source.get(keyword, {})
    for pattern, wanted in sides.target[keyword].items():
        if pattern in given:
            yield from sides.compare(given[pattern], wanted, f"{sides.path}/*")
        elif wanted is not True and wanted != {}:
            yield sides.undecided(keyword)


def _names(sides: Sides, keyword: str) -> Iterator[Difference]:
    given = sides.source.get(keyword, {})
    text: Node = {"type": "string"}
    names = given if given is False else {"allOf": [text, given]} if given else text
    yield from sides.compare(names, sides.target[keyword], f"{sides.path}/*")


def _items(sides: Sides, keyword: str) -> Iterator[Difference]:
    """Compare the items of arrays, those with a place of their own first."""
    source, target = sides.source, sides.target
    if keyword == "items" and "prefixItems" in target:
        return  # Compared by the rule of `prefixItems`.
    first, wanted = source.get("prefixItems", []), target.get("prefixItems", [])
    rest, wanted_rest = source.get("items", True), target.get("items", True)
    most = source.get("maxItems", math.inf)
    for index in range(max(len(first), len(wanted))):
        if index < most:
            given = first[index] if index < len(first) else rest
            there = wanted[index] if index < len(wanted) else wanted_rest
            yield from sides.compare(given, there, f"{sides.path}/{index}")
    if most > max(len(first), len(wanted)):
        yield from sides.compare(rest, wanted_rest, f"{sides.path}/*")


def _length(value: Any) -> float | None:
    return len(value) if isinstance(value, str) else None


def _item_count(value: Any) -> float | None:
    return len(value) if isinstance(value, list) else None


def _property_count(value: Any) -> float | None:
    return len(value) if isinstance(value, dict) else None


RULES: dict[str, tuple[str | None, Rule]] = {
    "type": (None, _type),
    "enum": (None, _values),
    "const": (None, _values),
    "minimum": ("number", _range),
    "exclusiveMinimum": ("number", _range),
    "maximum": ("number", _range),
    "exclusiveMaximum": ("number", _range),
    "multipleOf": ("number", _multiple),
    "minLength": ("string", _limit(_length)),
    "maxLength": ("string", _limit(_length)),
    "pattern": ("string", _same),
    "prefixItems": ("array", _items),
    "items": ("array", _items),
    "minItems": ("array", _limit(_item_count)),
    "maxItems": ("array", _limit(_item_count)),
    "uniqueItems": ("array", _unique),
    "contains": ("array", _contains),
    "unevaluatedItems": ("array", _unevaluated),
    "required": ("object", _required),
    "properties": ("object", _properties),
    "patternProperties": ("object", _patterns),
    "additionalProperties": ("object", _additional),
    "propertyNames": ("object", _names),
    "minProperties": ("object", _limit(_property_count)),
    "maxProperties": ("object", _limit(_property_count)),
    "dependentRequired": ("object", _dependent),
    "dependentSchemas": ("object", _same),
    "dependencies": ("object", _same),
    "unevaluatedProperties": ("object", _unevaluated),
    "not": (None, _same),
    "if": (None, _condition),
    "$dynamicRef": (None, _same),
}
"""The rule of each keyword of a target, with the type of the values that it concerns."""
