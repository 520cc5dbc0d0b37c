"""The columns of a topic: the fields that its JSON values have as typed columns, and how they may change.

They are described by a JSON Schema. Each field has an id that never changes, by which an Iceberg table knows it.
Columns only become wider, so that everything that was written with older columns can be read with newer ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from lakelog.errors import InvalidSchema
from lakelog.model.schema import MAX_SCHEMA_PARTS, schema_text
from lakelog.model.schema_nodes import resolve
from lakelog.model.structs import Value

FIRST_ID = 2000
"""The id of the first field. Lower ids belong to the columns that every topic has, and to partition fields."""
MAX_COLUMNS = 1000
"""The largest number of fields of a topic, with those inside of other fields."""
MAX_COLUMN_DEPTH = 32
MAX_COLUMN_NAME = 255
STRUCT, LIST, MAP = "struct", "list", "map"

_WIDER = {("int", "long"), ("float", "double")}
_PLAIN = {"boolean": "boolean", "integer": "long", "number": "double", "string": "string"}
_FORMATS = {
    ("integer", "int32"): "int",
    ("number", "float"): "float",
    ("string", "date"): "date",
    ("string", "date-time"): "timestamp",
}


class Column(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A field of a topic's values. Every field is nullable.

    Attributes:
        id: The id of the field, which never changes.
        name: The name of the field in JSON.
        type: `boolean`, `int`, `long`, `float`, `double`, `string`, `date`, `timestamp`, `binary`, `struct`, `list` or
            `map`.
        fields: The fields of a struct, the `element` of a list, or the `key` and `value` of a map.
    """

    id: int
    name: str
    type: str
    fields: tuple[Column, ...] = ()

    @property
    def type_text(self) -> str:
        """Return the type with its inner types, such as `list<struct<sku: string, count: long>>`."""
        if self.type == STRUCT:
            return f"struct<{', '.join(map(str, self.fields))}>"
        inner = ", ".join(each.type_text for each in self.fields)
        return f"{self.type}<{inner}>" if inner else self.type

    def __str__(self) -> str:
        return f"{self.name}: {self.type_text}"


class TopicColumns(Value, frozen=True, kw_only=True):
    """The columns of a topic.

    Attributes:
        version: The number of this version, from 1. It rises with every change.
        fields: The fields of the values.
    """

    version: int
    fields: tuple[Column, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))


@dataclass(frozen=True, slots=True)
class _Shape:
    """A type that a JSON Schema describes, before its fields have ids."""

    type: str
    fields: Mapping[str, _Shape] = field(default_factory=dict)


def widened(present: TopicColumns | None, schema: object) -> TopicColumns:
    """Return the columns after a change. Fields that the schema lacks stay.

    Args:
        present: The columns before the change; None if the topic has none.
        schema: The JSON Schema of an object. Fields without a single type get no column.

    Raises:
        InvalidSchema: If the schema describes no fields, or a field would get a type that is not wider.
    """
    root = msgspec.json.decode(schema_text(schema))
    shape = _Shapes(root).of(root)
    if shape is None or shape.type != STRUCT:
        raise InvalidSchema("The columns of a topic need a schema of an object with `properties` that have a type.")
    before = () if present is None else present.fields
    ids = count(max((each.id for each in walk(before)), default=FIRST_ID - 1) + 1)
    fields = _merged("v", before, shape.fields, ids)
    if present is not None and fields == before:
        return present
    total = sum(1 for _ in walk(fields))
    if total > MAX_COLUMNS:
        raise InvalidSchema(f"The columns of a topic have at most {MAX_COLUMNS} fields, not {total}.")
    return TopicColumns(version=1 if present is None else present.version + 1, fields=fields)


def walk(fields: tuple[Column, ...]) -> Iterator[Column]:
    """Yield the fields, each followed by those inside of it."""
    for each in fields:
        yield each
        yield from walk(each.fields)


def _merged(
    path: str, before: tuple[Column, ...], shapes: Mapping[str, _Shape], ids: Iterator[int]
) -> tuple[Column, ...]:
    present = {each.name: each for each in before}
    after = [_widened(f"{path}.{each.name}", each, shapes.get(each.name), ids) for each in before]
    folded = {name.lower() for name in present}
    for name, shape in shapes.items():
        if name in present:
            continue
        if not 0 < len(name) <= MAX_COLUMN_NAME or "\0" in name:
            raise InvalidSchema(f"The name of a column has 1 to {MAX_COLUMN_NAME} characters, without the character 0.")
        if name.lower() in folded:
            raise InvalidSchema(f"`{path}` has two fields {name!r} that differ only in case, which Spark cannot read.")
        folded.add(name.lower())
        after.append(_new(name, shape, ids))
    return tuple(after)


def _widened(path: str, before: Column, shape: _Shape | None, ids: Iterator[int]) -> Column:
    if shape is None:
        return before
    if shape.type != before.type and (before.type, shape.type) not in _WIDER:
        raise InvalidSchema(
            f"`{path}` is {before.type} and cannot become {shape.type}. Fields can be added, int can become long, and "
            "float can become double. Use another name for the field, or another topic."
        )
    return msgspec.structs.replace(before, type=shape.type, fields=_merged(path, before.fields, shape.fields, ids))


def _new(name: str, shape: _Shape, ids: Iterator[int]) -> Column:
    # The field itself gets its id before its inner fields.
    number = next(ids)
    inner = _merged(name, (), shape.fields, ids)
    return Column(id=number, name=name, type=shape.type, fields=inner)


class _Shapes:
    """Reads the types of a JSON Schema, of which only the references are known to be valid."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = MAX_SCHEMA_PARTS

    def of(self, part: object, seen: tuple[str, ...] = (), depth: int = 0) -> _Shape | None:
        """Return the type of a schema; None if it has several types, no known type, or contains itself."""
        if not isinstance(part, Mapping):
            return None
        # Definitions that refer to each other would be read in every order.
        self._left -= 1
        if self._left < 0 or depth > MAX_COLUMN_DEPTH:
            raise InvalidSchema(
                f"The columns of a topic have at most {MAX_COLUMNS} fields, nested at most {MAX_COLUMN_DEPTH} levels "
                "deep, and this schema describes more."
            )
        if "$ref" in part:
            name = part["$ref"]
            return None if name in seen else self.of(resolve(self._root, name), (*seen, name), depth)
        kind = _kind(part)
        if kind is None:
            some = [each for several in ("anyOf", "oneOf", "allOf") for each in _list(part, several)]
            some = [each for each in some if each != {"type": "null"}]
            return self.of(some[0], seen, depth) if len(some) == 1 else None
        if kind == "object":
            return self._object(part, seen, depth + 1)
        if kind == "array":
            element = None if "prefixItems" in part else self.of(part.get("items"), seen, depth + 1)
            return None if element is None else _Shape(LIST, {"element": element})
        if kind == "string" and part.get("contentEncoding") == "base64":
            return _Shape("binary")
        found = _FORMATS.get((kind, str(part.get("format"))), _PLAIN.get(kind))
        return None if found is None else _Shape(found)

    def _object(self, part: Mapping[str, Any], seen: tuple[str, ...], depth: int) -> _Shape | None:
        properties = part.get("properties")
        if isinstance(properties, Mapping) and properties:
            found = {name: self.of(each, seen, depth) for name, each in properties.items()}
            fields = {name: shape for name, shape in found.items() if shape is not None}
            return _Shape(STRUCT, fields) if fields else None
        value = self.of(part.get("additionalProperties"), seen, depth)
        return None if value is None else _Shape(MAP, {"key": _Shape("string"), "value": value})


def _kind(part: Mapping[str, Any]) -> str | None:
    """Return the type in JSON, if there is one besides null."""
    kind = part.get("type")
    if kind is None and "properties" in part:
        return "object"
    if kind is None and (texts := _list(part, "enum")) and all(isinstance(each, str | None) for each in texts):
        return "string"
    kinds = [each for each in _list(part, "type") if each != "null"] or [kind]
    return kinds[0] if len(kinds) == 1 and isinstance(kinds[0], str) else None


def _list(part: Mapping[str, Any], keyword: str) -> list[Any]:
    found = part.get(keyword)
    return found if isinstance(found, list) else []
