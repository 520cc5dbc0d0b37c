"""The routes of pipelines."""

from __future__ import annotations

import pytest

from tests.unit.server.harness import working


@pytest.mark.parametrize("name", ["%C2%84", "Tier", "a" * 121])
async def test_a_pipeline_needs_a_valid_name(name: str) -> None:
    async with working() as made:
        body = {"run_id": "0123456789abcdef", "topic": "orders"}
        reply = await made.call("POST", f"/v1/pipelines/{name}/runs", json=body)
    assert (reply.status, reply.json["code"]) == (422, "invalid_name")
