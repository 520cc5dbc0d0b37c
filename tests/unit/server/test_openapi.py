"""The API's description: complete, valid, and in step with the routes."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from lakelog.wire.operations import OPERATIONS, PUBLIC
from tests.unit.server.harness import world


async def _description() -> dict[str, Any]:
    async with world() as made:
        reply = await made.call("GET", "/openapi.json", token=None)
    assert reply.status == 200
    found: dict[str, Any] = reply.json
    return found


async def test_every_route_is_described() -> None:
    paths = (await _description())["paths"]
    described = {
        (method.upper(), path): operation for path, item in paths.items() for method, operation in item.items()
    }
    assert set(described) == {(route.method, route.path) for route in OPERATIONS}
    assert len({operation["operationId"] for operation in described.values()}) == len(OPERATIONS)
    for route in OPERATIONS:
        operation = described[route.method, route.path]
        assert operation["security"] == ([] if route.rights is PUBLIC else [{"token": []}])
        assert set(operation["responses"]) >= {str(status) for status in route.statuses}
        if route.rights is not PUBLIC:
            assert {"401", "403", "422", "429", "503"} <= set(operation["responses"])


async def test_references_lead_somewhere() -> None:
    description = await _description()
    schemas = description["components"]["schemas"]

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"].removeprefix("#/components/schemas/")} if "$ref" in node else set()
            return own.union(*map(references, node.values()))
        return set().union(*map(references, node)) if isinstance(node, list) else set()

    assert references(description) <= set(schemas)
    assert "Problem" in references(description)


async def test_the_schemas_are_valid_and_the_examples_fit() -> None:
    description = await _description()
    for schema in description["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    examples = 0
    for item in description["paths"].values():
        for operation in item.values():
            if content := operation.get("requestBody", {}).get("content", {}).get("application/json"):
                whole = {**content["schema"], "components": description["components"]}
                jsonschema.validate(content["example"], whole, jsonschema.Draft202012Validator)
                examples += 1
    assert examples == sum(route.example is not None for route in OPERATIONS) > 30


async def test_a_pair_is_described_by_its_items() -> None:
    description = await _description()
    (pair, _) = description["components"]["schemas"]["Skipped"]["properties"]["unreadable"]["anyOf"]
    assert pair == {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "integer"}}


@pytest.mark.parametrize("message", [{}, {"key": "k"}, {"value_base64": 1}, {"value": 1, "other": 1}])
async def test_the_schema_refuses_what_the_server_refuses(message: dict[str, Any]) -> None:
    description = await _description()
    schema = {"$ref": "#/components/schemas/MessageShape", "components": description["components"]}
    assert not jsonschema.Draft202012Validator(schema).is_valid(message)
    async with world() as made:
        assert (await made.publish("orders", message)).status == 422


async def test_problems_fit_their_schema() -> None:
    description = await _description()
    schema = description["components"]["schemas"]["Problem"]
    async with world() as made:
        for reply in (await made.call("GET", "/nowhere"), await made.publish("orders"), await made.fetch("missing")):
            jsonschema.validate(reply.json, schema, jsonschema.Draft202012Validator)
