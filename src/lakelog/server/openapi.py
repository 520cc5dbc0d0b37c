"""The API's description (OpenAPI 3.1), made from the routing table and the shapes. Nothing in it is written twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from lakelog.errors import all_errors
from lakelog.server.routing import PUBLIC, Body, Parameter, Route
from lakelog.wire.problems import MEDIA_TYPE

_REFERENCE = "#/components/schemas/{name}"
_PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "topic": {"schema": {"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"}, "example": "orders"},
    "partition": {"schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999}, "example": 0},
    "group": {"schema": {"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"}, "example": "billing"},
    "message_id": {"schema": {"type": "string", "pattern": "^[0-9]{1,18}-[0-9]{1,5}-[0-9]{1,18}$"}, "example": "1-0-0"},
    "pipeline": {"schema": {"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"}, "example": "tier"},
    "run_id": {"schema": {"type": "string", "minLength": 8, "maxLength": 200}, "example": "0f5c2f6be1d94f9c"},
}
_FETCH_HEADERS = {
    "Lakelog-Start": "The offset at which the answer begins.",
    "Lakelog-Next-Offset": "Where to read on.",
    "Lakelog-Log-Start": "The lowest offset that can still be read.",
    "Lakelog-High-Watermark": "The offset that the next message will get.",
    "Lakelog-Incarnation": "Which topic of this name it is: a recreated one has another.",
}
_PROBLEM = {
    "type": "object",
    "description": "What went wrong (RFC 9457). Further fields name its subject.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": sorted({kind.code for kind in all_errors()})},
        "detail": {"type": "string", "description": "What happened, and what to do next."},
        "retryable": {"type": "boolean"},
        "request_id": {"type": "string"},
    },
    "required": ["type", "title", "status", "code", "detail", "retryable", "request_id"],
}


def describe(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """The whole document."""
    routes = list(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
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
            "schemas": {**_schemas(routes), "Problem": _PROBLEM},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "From `lakelog tokens create`."}
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "security": [] if route.rule is PUBLIC else [{"token": []}],
        "parameters": [*_path_parameters(route.path), *(_query_parameter(parameter) for parameter in route.query)],
        "responses": _responses(route),
    }
    if isinstance(route.rule, frozenset):
        operation["description"] = f"Needs a token with the right {' or '.join(sorted(route.rule))}."
    if route.body is not None:
        content = _content(route.body)
        if "application/json" in content:
            content["application/json"]["example"] = route.example
        operation["requestBody"] = {"required": not route.body_optional, "content": content}
    return operation


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, **_PATH_PARAMETERS[name]} for name in names]


def _query_parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in sorted({*_problems(route)} - {*route.answers}):
        headers = {"Retry-After": _header("Seconds to wait.", "integer")} if status in (429, 503) else {}
        responses[str(status)] = _response(status, {MEDIA_TYPE: {"schema": {"$ref": _ref("Problem")}}}, headers)
    for status, body in route.answers.items():
        headers = {}
        if route.operation == "fetch":
            headers = {name: _header(text, "integer") for name, text in _FETCH_HEADERS.items()}
        responses[str(status)] = _response(status, _content(body), headers)
    return responses


def _problems(route: Route) -> set[int]:
    problems = {429, 500, *route.problems}
    if route.rule is not PUBLIC:
        problems |= {401, 403, 422, 503}
    if route.body is not None:
        problems |= {408, 413, 415}
    return problems


def _response(status: int, content: dict[str, Any], headers: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "headers": {"X-Request-Id": _header("The call's id, in the log too.", "string"), **headers},
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


def _schemas(routes: Iterable[Route]) -> dict[str, Any]:
    bodies: list[Body] = []
    for route in routes:
        bodies += [*route.answers.values(), *([route.body] if route.body else [])]
    used = {shape.__name__: shape for body in bodies for shapes in body.values() for shape in shapes}
    _, schemas = msgspec.json.schema_components(used.values(), ref_template=_REFERENCE)
    for schema in schemas.values():
        _mark_base64(schema.get("properties", {}))
    # What a struct cannot say of itself: one of the two is needed.
    schemas["MessageShape"]["anyOf"] = [{"required": ["value"]}, {"required": ["value_base64"]}]
    return schemas


def _mark_base64(properties: Mapping[str, Any]) -> None:
    for name, schema in properties.items():
        if name.endswith("_base64"):
            schema["contentEncoding"] = "base64"


def _ref(name: str) -> str:
    return _REFERENCE.format(name=name)
