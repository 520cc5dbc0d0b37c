"""The schemas that callers give for a topic: a JSON Schema, a file with one, or the type of the topic."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from lakelog.errors import InvalidRequest, InvalidSchema
from lakelog.model.arguments import refusal
from lakelog.model.columns import widened
from lakelog.model.kinds import Compatibility
from lakelog.model.schema_nodes import JsonSchema

FROM_TYPE = "from-type"
"""The argument that derives the schema from the type of the topic."""

GivenSchema = Mapping[str, Any] | bool | str | os.PathLike[str]
"""A JSON Schema, the path of a JSON file with one, or `"from-type"`."""


def schema_of(given: GivenSchema, kind: Any) -> JsonSchema:
    """Return the JSON Schema that a caller gave. `kind` is the type of the topic, or None."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, bool):
        return given
    if given == FROM_TYPE:
        return schema_of_type(kind)
    if isinstance(given, os.PathLike):
        return _schema_in(Path(given))
    raise refusal("schema", f"a JSON Schema as a dict, a pathlib.Path of a JSON file, or {FROM_TYPE!r}", given)


def columns_schema(given: GivenSchema, kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a topic's columns that a caller gave. `kind` is the type of the topic, or None."""
    found = schema_of(given, kind)
    widened(None, found)
    assert isinstance(found, dict), "a schema without fields is refused"
    return found


def schema_of_type(kind: Any) -> JsonSchema:
    """Return the JSON Schema of the values of a type, in the form in which they are published."""
    if kind is None:
        raise InvalidRequest(
            f"The topic has no type, and `schema` is {FROM_TYPE!r}. Give the type: log.topic(name, type=Order)."
        )
    if hasattr(kind, "model_json_schema"):
        # Values are published under the names that the model writes, which are not its aliases by default.
        by_alias = bool(getattr(kind, "model_config", {}).get("serialize_by_alias", False))
        found: dict[str, Any] = kind.model_json_schema(by_alias=by_alias)
        return found
    try:
        return msgspec.json.schema(kind)
    except TypeError as error:
        name = getattr(kind, "__name__", kind)
        raise InvalidSchema(f"No JSON Schema can be derived from {name}: {error}. Give the schema instead.") from error


def check_mode(given: str | None) -> Compatibility | None:
    """Return the compatibility that a caller gave."""
    if given is None:
        return None
    try:
        return Compatibility(given)
    except ValueError:
        raise refusal("compatibility", f"one of {', '.join(Compatibility)}", given) from None


def _schema_in(path: Path) -> JsonSchema:
    try:
        found = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidSchema(f"{path} is not JSON: {error}.") from error
    if not isinstance(found, dict | bool):
        raise InvalidSchema(f"{path} holds {type(found).__name__}, and a schema is a JSON object.")
    return found
