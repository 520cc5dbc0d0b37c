"""The schema of a topic: its versions, the requests and replies about it, and the check of a schema that is given.

The compatibility of two versions is in `schema_comparison`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lakelog.errors import InvalidSchema
from lakelog.model.kinds import Compatibility
from lakelog.model.schema_nodes import JsonSchema, Node, resolve, subschemas
from lakelog.model.structs import Name, Positive, Request, Value

MAX_SCHEMA_BYTES = 64 << 10
"""The largest schema as JSON, in bytes."""
MAX_SCHEMA_DEPTH = 64
"""The deepest nesting of objects and lists in a schema."""
MAX_SCHEMA_PARTS = 10_000
"""The largest number of subschemas, counted once for each reference to them. It limits the time of a validation."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSetting:
    """The schema in the settings of a topic: its newest version, and the rule for the next change."""

    version: int
    compatibility: Compatibility = Compatibility.BACKWARD


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRecord:
    """One version of a topic's schema in the catalog, as JSON."""

    version: int
    text: str
    created_at: datetime


class SchemaVersion(Value, frozen=True, kw_only=True):
    """One version of a topic's schema.

    Attributes:
        version: The number of the version, from 1.
        created_at: When it was set, in UTC.
    """

    version: int
    created_at: datetime


class TopicSchema(Value, frozen=True, kw_only=True):
    """The schema of a topic.

    Attributes:
        topic: The name of the topic.
        version: The number of this version, from 1.
        compatibility: The rule for the next change of the schema.
        schema: The JSON Schema.
        created_at: When this version was set, in UTC.
        versions: All versions, the oldest first.
    """

    topic: str
    version: int
    compatibility: Compatibility
    schema: JsonSchema
    created_at: datetime
    versions: tuple[SchemaVersion, ...] = ()

    def __repr__(self) -> str:
        return f"TopicSchema(topic={self.topic!r}, version={self.version}, compatibility={self.compatibility.value!r})"


class SchemaChange(Value, frozen=True, kw_only=True):
    """A reason why a change of a schema is refused.

    Attributes:
        path: The field, as a JSON Pointer; `*` is any item or any other property, and empty is the whole value.
        rule: The keyword of JSON Schema.
        reason: The difference, in words.
        decided: False if the two versions cannot be compared here.
    """

    path: str
    rule: str
    reason: str
    decided: bool = True

    def __str__(self) -> str:
        return f"{self.path or 'the value'}: {self.reason} (rule `{self.rule}`)"


class SchemaCheck(Value, frozen=True, kw_only=True):
    """The result of a check of a schema.

    Attributes:
        compatible: Whether the topic accepts the schema.
        compatibility: The rule by which it was compared.
        version: The version that it was compared with; None if the topic has no schema.
        changed: Whether the schema differs from that version.
        changes: The reasons why it is refused.
    """

    compatible: bool
    compatibility: Compatibility
    version: int | None = None
    changed: bool = True
    changes: tuple[SchemaChange, ...] = ()


class SchemaQuery(Request, frozen=True, kw_only=True):
    """A request for the schema of a topic."""

    topic: Name
    version: Annotated[Positive, Meta(description="The version to return. Default: the newest.")] | None = None


class SetSchemaRequest(Request, frozen=True, kw_only=True):
    """A request to set the schema of a topic, or the rule for its changes. The rule also applies to this change."""

    topic: Name
    schema: dict[str, Any] | bool | UnsetType = UNSET
    compatibility: Compatibility | None = None


class CheckSchemaRequest(Request, frozen=True, kw_only=True):
    """A request to compare a schema with that of a topic."""

    topic: Name
    schema: dict[str, Any] | bool
    compatibility: Compatibility | None = None


def schema_text(schema: object) -> str:
    """Return a schema as JSON, in the form in which it is stored; raise `InvalidSchema` if it is not accepted.

    Whether the keywords are valid is checked when a validator is made of it.
    """
    if not isinstance(schema, Mapping | bool):
        raise InvalidSchema(f"A schema must be a JSON object, True or False, not {type(schema).__name__}.")
    try:
        text = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSchema(f"The schema is not JSON: {error}.") from error
    if len(text) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"The schema has {len(text)} bytes; the limit is {MAX_SCHEMA_BYTES}.")
    if isinstance(schema, Mapping):
        node: Node = msgspec.json.decode(text)
        _check_depth(node)
        _check_dialect(node)
        try:
            _check_parts(node)
        except RecursionError:
            raise InvalidSchema("The references of the schema form a chain that is too long.") from None
    return text.decode()


def _check_depth(node: object) -> None:
    left = [(node, 1)]
    while left:
        part, depth = left.pop()
        if depth > MAX_SCHEMA_DEPTH:
            raise InvalidSchema(f"The schema is nested more than {MAX_SCHEMA_DEPTH} levels deep.")
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        left += [(each, depth + 1) for each in inner]


def _check_dialect(node: Node) -> None:
    dialect = node.get("$schema", DIALECT)
    if not isinstance(dialect, str) or dialect.rstrip("#") != DIALECT:
        raise InvalidSchema(f"`$schema` is {dialect!r}. Use draft 2020-12: {DIALECT}")


def _check_parts(root: Node) -> None:
    """Refuse references to other documents, and schemas whose references multiply."""
    weights: dict[str, int] = {}

    def weigh(schema: object, pointer: str) -> int:
        if not isinstance(schema, dict):
            return 1
        weight = 1
        for inner, part in subschemas(schema):
            _check_identity(part, pointer + inner)
            added = weigh(part, pointer + inner)
            weight += 0 if inner.startswith(("/$defs/", "/definitions/")) else added
        if "$ref" in schema:
            weight += follow(schema["$ref"], pointer)
        return min(weight, 2 * MAX_SCHEMA_PARTS)

    def follow(reference: object, pointer: str) -> int:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise InvalidSchema(
                f"`$ref` at #{pointer} is {reference!r}. A schema must refer only to itself: write '#/$defs/NAME', and "
                "copy the other schema into `$defs`. Lakelog never reads schemas from a network or a file."
            )
        if reference not in weights:
            # A reference that leads back to itself is counted once: the validator does not repeat it.
            weights[reference] = 1
            target = resolve(root, reference)
            weights[reference] = weigh(target, reference[1:])
        return weights[reference]

    if weigh(root, "") > MAX_SCHEMA_PARTS:
        raise InvalidSchema(
            f"The schema has more than {MAX_SCHEMA_PARTS} subschemas, counted once for each reference to them. "
            "Use fewer references to the same definitions."
        )


def _check_identity(part: object, pointer: str) -> None:
    if isinstance(part, dict):
        for keyword in ("$id", "$schema", "$anchor", "$dynamicAnchor", "$dynamicRef"):
            if keyword in part:
                raise InvalidSchema(
                    f"`{keyword}` at #{pointer} is not accepted inside a schema. Refer to '#/$defs/NAME' instead."
                )
