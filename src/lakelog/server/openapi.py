"""The OpenAPI 3.1 document, generated from the table of operations and the structs of their bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from lakelog.errors import all_errors
from lakelog.wire.operations.operation import JSON, PUBLIC, Body, Operation, Parameter
from lakelog.wire.problems import MEDIA_TYPE

Row = Operation[Any, Any]

_REFERENCE = "#/components/schemas/{name}"
_PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "topic": {"schema": {"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"}, "example": "orders"},
    "partition": {"schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999}, "example": 0},
    "group": {"schema": {"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"}, "example": "billing"},
    "message_id": {"schema": {"type": "string", "pattern": "^[0-9]{1,18}-[0-9]{1,5}-[0-9]{1,18}$"}, "example": "1-0-0"},
    "name": {"schema": {"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"}, "example": "orders-2025"},
    "namespace": {"schema": {"type": "string", "minLength": 1, "maxLength": 250}, "example": "default.dev"},
    "pipeline": {"schema": {"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"}, "example": "tier"},
    "run_id": {"schema": {"type": "string", "minLength": 8, "maxLength": 200}, "example": "0f5c2f6be1d94f9c"},
    "token_id": {"schema": {"type": "string", "minLength": 1, "maxLength": 120}, "example": "5f0c2f6be1d9"},
}
_FETCH_HEADERS = {
    "Lakelog-Start": "The offset at which the response begins.",
    "Lakelog-Next-Offset": "The offset at which to continue.",
    "Lakelog-Log-Start": "The lowest offset that can still be read.",
    "Lakelog-High-Watermark": "The offset that the next message will get.",
    "Lakelog-Incarnation": "The incarnation of the topic; a recreated topic has another.",
}
_PROBLEM = {
    "type": "object",
    "description": "A problem (RFC 9457). Further fields name its subject.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": sorted({kind.code for kind in all_errors()})},
        "detail": {"type": "string", "description": "A description of the problem and what to do next."},
        "retryable": {"type": "boolean"},
        "request_id": {"type": "string"},
    },
    "required": ["type", "title", "status", "code", "detail", "retryable", "request_id"],
}


def describe(operations: Iterable[Row], version: str) -> dict[str, Any]:
    """Return the whole document."""
    operations = list(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lakelog",
            "version": version,
            "description": "Durable topics on PostgreSQL, for Python workers and Spark alike.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {**_schemas(operations), "Problem": _PROBLEM},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "From `lakelog tokens create`."}
            },
        },
    }


def _operation(row: Row) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.summary,
        "security": [] if row.rights is PUBLIC else [{"token": []}],
        "parameters": [*_path_parameters(row), *(_query_parameter(parameter) for parameter in _query(row))],
        "responses": _responses(row),
    }
    if isinstance(row.rights, frozenset):
        operation["description"] = f"Needs a token with the right {' or '.join(sorted(row.rights))}."
    body = _body(row)
    if body is not None:
        content = _content(body)
        if JSON in content:
            content[JSON]["example"] = row.example
        operation["requestBody"] = {"required": row.media is not None or row.needs_body, "content": content}
    return operation


def _body(row: Row) -> Body | None:
    if row.media is not None and (row.media.body is not None or row.request is None):
        return row.media.body
    return None if row.rest is None or row.method == "GET" else {JSON: (row.rest,)}


def _replies(row: Row) -> Mapping[int, Body]:
    if row.media is not None:
        return row.media.replies
    return {204: {}} if row.reply_shape is None else {row.status: {JSON: (row.reply_shape,)}}


def _query(row: Row) -> Iterable[Parameter]:
    if row.media is not None:
        return row.media.query
    if row.rest is None or row.method != "GET":
        return ()
    (_,), schemas = msgspec.json.schema_components([row.rest])
    struct = schemas[row.rest.__name__]
    return [
        _parameter_of(name, dict(schema), name in struct["required"]) for name, schema in struct["properties"].items()
    ]


def _parameter_of(name: str, schema: dict[str, Any], is_required: bool) -> Parameter:
    """Return the parameter of a field. In a query, an optional field is never null."""
    if "anyOf" in schema and {"type": "null"} in schema["anyOf"]:
        del schema["default"]
        others = [each for each in schema.pop("anyOf") if each != {"type": "null"}]
        schema |= others[0] if len(others) == 1 else {"anyOf": others}
    return Parameter(name=name, description=schema.pop("description"), schema=schema, required=is_required)


def _path_parameters(row: Row) -> list[dict[str, Any]]:
    return [{"name": name, "in": "path", "required": True, **_PATH_PARAMETERS[name]} for name in row.path_fields]


def _query_parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }


def _responses(row: Row) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    replies = _replies(row)
    for status in sorted({*_problems(row)} - {*replies}):
        headers = {"Retry-After": _header("Seconds to wait.", "integer")} if status in (429, 503) else {}
        responses[str(status)] = _response(status, {MEDIA_TYPE: {"schema": {"$ref": _ref("Problem")}}}, headers)
    for status, body in replies.items():
        headers = {}
        if row.name == "fetch":
            headers = {name: _header(text, "integer") for name, text in _FETCH_HEADERS.items()}
        responses[str(status)] = _response(status, _content(body), headers)
    return responses


def _problems(row: Row) -> set[int]:
    problems = {429, 500, *row.problems}
    if row.rights is not PUBLIC:
        problems |= {401, 403, 422, 503}
    if _body(row) is not None:
        problems |= {408, 413, 415}
    return problems


def _response(status: int, content: dict[str, Any], headers: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "headers": {
            "X-Request-Id": _header("The id of the call, which the server's log also names.", "string"),
            **headers,
        },
    }
    if content:
        response["content"] = content
    return response


def _header(description: str, kind: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind}}


def _content(body: Body) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for media_type, shapes in body.items():
        references = [{"$ref": _ref(shape.__name__)} for shape in shapes]
        content[media_type] = {"schema": {"anyOf": references} if len(references) > 1 else (references or [{}])[0]}
    return content


def _schemas(operations: Iterable[Row]) -> dict[str, Any]:
    bodies: list[Body] = []
    for row in operations:
        bodies += [*_replies(row).values(), _body(row) or {}]
    used = {shape.__name__: shape for body in bodies for shapes in body.values() for shape in shapes}
    _, schemas = msgspec.json.schema_components(used.values(), ref_template=_REFERENCE)
    for schema in schemas.values():
        _mark_base64(schema.get("properties", {}))
        _use_items(schema)
    # A struct cannot express that one of the two is required.
    schemas["MessageShape"]["anyOf"] = [{"required": ["value"]}, {"required": ["value_base64"]}]
    return schemas


def _use_items(schema: Any) -> None:
    """Describe arrays of equal items by `items`, because some tools do not read `prefixItems`."""
    if isinstance(schema, dict):
        first, *others = schema.get("prefixItems", [None])
        if first is not None and all(each == first for each in others):
            schema["items"] = schema.pop("prefixItems")[0]
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _use_items(part)


def _mark_base64(properties: Mapping[str, Any]) -> None:
    for name, schema in properties.items():
        if name.endswith("_base64"):
            schema["contentEncoding"] = "base64"


def _ref(name: str) -> str:
    return _REFERENCE.format(name=name)
