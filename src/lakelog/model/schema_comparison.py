"""The compatibility of two JSON Schemas: whether one accepts all values that the other accepts.

Nothing is accepted by guess: where two schemas cannot be compared, the difference says so. Two assumptions keep usual
changes possible. A property that only one schema declares is not used by values of the other, although a schema without
`additionalProperties` accepts it. And `format` is a note for readers, as draft 2020-12 defines it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from lakelog.model.kinds import Compatibility
from lakelog.model.schema_nodes import (
    JsonSchema,
    Node,
    declared_types,
    fingerprint,
    includes,
    merged,
    resolve,
    types_of,
    values_of,
)
from lakelog.model.schema_rules import Difference, Sides, apply_rules

_MAX_STEPS = 5000
"""The largest number of compared pairs, so that no two schemas keep a server busy."""
_MAX_REFERENCES = 32
_NOTES = frozenset(
    {"$defs", "definitions", "title", "description", "default", "examples", "$schema", "$id", "$comment"}
)
_LOCAL = (b'"$ref":"#/$defs/', b'"$ref":"#/definitions/')


class _TooComplex(Exception):
    pass


def differences(old: JsonSchema, new: JsonSchema, mode: Compatibility) -> list[Difference]:
    """Return the reasons why a change from the old to the new schema breaks the mode; none if it does not."""
    found: list[Difference] = []
    if mode in (Compatibility.BACKWARD, Compatibility.FULL):
        found += _Comparison(old, new, "the old schema", "the new schema").run()
    if mode in (Compatibility.FORWARD, Compatibility.FULL):
        found += _Comparison(new, old, "the new schema", "the old schema").run()
    return list(dict.fromkeys(found))


class _Comparison:
    """Collects the reasons why the target may refuse a value of the source."""

    def __init__(self, source: JsonSchema, target: JsonSchema, source_name: str, target_name: str) -> None:
        self._source, self._target = source, target
        self._source_name, self._target_name = source_name, target_name
        self._steps = 0
        self._assumed: dict[tuple[bytes, bytes], str] = {}
        """The pairs whose comparison is running, with their paths.

        A recursive schema meets them again at a longer path, where they add nothing. At the same path, the schema
        refers to itself without a value in between, and has no meaning.
        """
        shared = fingerprint(_definitions(source))
        self._same_definitions = shared == fingerprint(_definitions(target)) and _is_local(shared)

    def run(self) -> list[Difference]:
        try:
            return self._compare(self._source, self._target, "")
        except (_TooComplex, RecursionError):
            reason = "cannot compare the schemas, because they are too complex"
            return [Difference(path="", rule="$ref", reason=reason, is_decided=False)]

    def _compare(self, source: JsonSchema, target: JsonSchema, path: str) -> list[Difference]:
        if target is True or source is False or target == {}:
            return []
        if target is False:
            reason = f"{self._target_name} accepts no value here, and {self._source_name} does"
            return [Difference(path=path, rule="false", reason=reason)]
        self._step()
        pair = (fingerprint(source), fingerprint(target))
        if self._assumed.get(pair, path) != path or self._is_same(source, target):
            return []
        if pair in self._assumed:
            raise _TooComplex
        self._assumed[pair] = path
        try:
            given, is_exact = self._expanded(source)
            found = [each for part in self._parts(target, path) for each in self._compare_part(given, part, path)]
            return found if is_exact else [_undecided(each) for each in found]
        finally:
            del self._assumed[pair]

    def _compare_part(self, source: Node, target: Node | Difference, path: str) -> list[Difference]:
        """Compare a source without references to one part of a target."""
        if isinstance(target, Difference):
            return [target]
        found = apply_rules(self._sides(source, target, path))
        for keyword in ("anyOf", "oneOf"):
            if keyword in target:
                found += self._alternatives(source, target, keyword, path)
        if not found:
            return []
        pieces = _branches(source)
        if pieces:
            return [each for piece in pieces for each in self._compare(piece, target, path)]
        return found

    def _alternatives(self, source: Node, target: Node, keyword: str, path: str) -> list[Difference]:
        """Compare a source to alternatives, each of which accepts a part of its values."""
        branches = target[keyword]
        if keyword == "oneOf" and not self._are_disjoint(branches):
            if keyword in source and self._is_same(source[keyword], branches):
                return []
            return [self._sides(source, target, path).undecided(keyword)]
        closest = self._closest(source, branches, path)
        pieces = _pieces(source) if closest else []
        return [each for piece in pieces for each in self._closest(piece, branches, path)] if pieces else closest

    def _closest(self, source: Node, branches: Sequence[JsonSchema], path: str) -> list[Difference]:
        """Return why the alternative that comes closest does not accept the source; none if one accepts it."""
        tried = [self._compare(source, branch, path) for branch in branches]
        best = min(tried, key=len, default=[])
        is_decided = all(each.is_decided for found in tried for each in found)
        return best if is_decided else [_undecided(each) for each in best]

    def _expanded(self, schema: JsonSchema) -> tuple[Node, bool]:
        """Return a schema with its references and `allOf` merged into it, and whether that is exact."""
        parts: list[Node] = []
        is_exact = True
        for part in self._conjuncts(schema, self._source):
            if part is False:
                return {"type": []}, True
            is_exact = is_exact and part is not None
            if isinstance(part, dict):
                parts.append(part)
        node, is_merged = merged(parts or [{}])
        return node, is_exact and is_merged

    def _parts(self, target: JsonSchema, path: str) -> Iterator[Node | Difference]:
        """Return the schemas that must all accept a value, without references."""
        for part in self._conjuncts(target, self._target):
            if part is None:
                reason = f"cannot follow a reference of {self._target_name}"
                yield Difference(path=path, rule="$ref", reason=reason, is_decided=False)
            elif part is False:
                yield Difference(path=path, rule="false", reason=f"{self._target_name} accepts no value here")
            elif isinstance(part, dict):
                yield part

    def _conjuncts(self, schema: JsonSchema, root: JsonSchema, depth: int = 0) -> Iterator[JsonSchema | None]:
        """Return the schemas that must all accept a value: the keywords beside `$ref` and `allOf`, and these.

        A reference that cannot be followed is None.
        """
        self._step()
        if isinstance(schema, bool):
            yield schema
            return
        if depth > _MAX_REFERENCES:
            yield None
            return
        rest = {name: value for name, value in schema.items() if name not in _NOTES and name not in ("$ref", "allOf")}
        if rest:
            yield rest
        if "$ref" in schema:
            target = resolve(root, schema["$ref"])
            if target is None:
                yield None
            else:
                yield from self._conjuncts(target, root, depth + 1)
        for part in schema.get("allOf", ()):
            yield from self._conjuncts(part, root, depth + 1)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _TooComplex

    def _are_disjoint(self, branches: Sequence[JsonSchema]) -> bool:
        """Return whether no value matches two of the target's alternatives, as far as it is easy to see."""
        parts = [[part for part in self._conjuncts(each, self._target) if isinstance(part, dict)] for each in branches]
        nodes = [merged(found or [{}])[0] for found in parts]
        return all(self._exclude(one, other) for one, other in combinations(nodes, 2))

    def _exclude(self, one: Node, other: Node) -> bool:
        first, second = types_of(one), types_of(other)
        if not any(includes(first, kind) and includes(second, kind) for kind in first | second):
            return True
        values, others = values_of(one), values_of(other)
        if values is not None and others is not None:
            return set(map(fingerprint, values)).isdisjoint(map(fingerprint, others))
        if first != {"object"} or second != {"object"}:
            return False
        tags = set(one.get("required", ())) & set(other.get("required", ()))
        return any(self._exclude_tag(one, other, tag) for tag in tags)

    def _exclude_tag(self, one: Node, other: Node, tag: str) -> bool:
        both = [each.get("properties", {}).get(tag) for each in (one, other)]
        return all(isinstance(each, dict) and "$ref" not in each for each in both) and self._exclude(*both)

    def _is_same(self, one: object, other: object) -> bool:
        """Return whether two parts are equal and their references lead to equal definitions."""
        text = fingerprint(one)
        return text == fingerprint(other) and (b'"$ref"' not in text or (self._same_definitions and _is_local(text)))

    def _sides(self, source: Node, target: Node, path: str) -> Sides:
        return Sides(
            source=source,
            target=target,
            path=path,
            source_name=self._source_name,
            target_name=self._target_name,
            compare=self._compare,
            is_same=self._is_same,
        )


def _branches(source: Node) -> list[JsonSchema]:
    """Return the alternatives of a source, each with the keywords beside them."""
    for keyword in ("anyOf", "oneOf"):
        if keyword in source:
            rest = {name: value for name, value in source.items() if name != keyword}
            return [{"allOf": [rest, branch]} if rest else branch for branch in source[keyword]]
    return []


def _pieces(source: Node) -> list[Node]:
    """Return schemas that together accept the values of a source: one for each of its values, or of its types."""
    values = values_of(source)
    if values is not None:
        return [{"const": value} for value in values] if len(values) > 1 else []
    types = declared_types(source)
    return [{**source, "type": kind} for kind in sorted(types)] if len(types) > 1 else []


def _definitions(root: JsonSchema) -> object:
    return None if isinstance(root, bool) else [root.get("$defs"), root.get("definitions")]


def _is_local(text: bytes) -> bool:
    return sum(text.count(start) for start in _LOCAL) == text.count(b'"$ref"')


def _undecided(found: Difference) -> Difference:
    reason = found.reason if not found.is_decided else f"cannot compare it: {found.reason}"
    return Difference(path=found.path, rule=found.rule, reason=reason, is_decided=False)
