"""Calls and memory of a server are divided between environments."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.server import traffic
from tests.kit.waiting import eventually_async
from tests.unit.server.harness import world

POLL = "/v1/topics/orders/partitions/0/messages"


async def test_an_environment_with_all_calls_leaves_room_when_another_one_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traffic, "MAX_IN_FLIGHT", 8)
    async with world() as made:
        scope = await made.other_scope("other", "other")
        await made.engine.topics.create(scope, "orders", 1)
        other = await made.make_token(scope=scope)
        gone = [asyncio.Event() for _ in range(8)]
        polls = [
            asyncio.create_task(made.call("GET", POLL, query="offset=latest&wait_ms=30000", gone=each)) for each in gone
        ]
        await eventually_async(lambda: made.app.traffic.in_flight == 8)
        assert (await made.call("GET", "/v1/topics", token=other)).status == 429
        gone[0].set()
        await polls[0]
        assert (await made.call("GET", "/v1/topics")).status == 429
        assert (await made.call("GET", "/v1/topics", token=other)).status == 200
        assert (await made.call("GET", "/healthz", token=None)).status == 200
        for each in gone:
            each.set()
        await asyncio.gather(*polls)
        assert (await made.call("GET", "/v1/topics")).status == 200
        assert made.app.traffic.in_flight == 0 and not made.app.traffic.shares._held


async def test_an_environment_with_all_memory_leaves_room_when_another_one_needs_it() -> None:
    async with world(memory_bytes=10_000) as made:
        scope = await made.other_scope("other", "other")
        await made.engine.topics.create(scope, "orders", 1)
        other = await made.make_token(scope=scope)
        message = {"value": "x" * 1000}
        budget = made.engine.budget
        with budget.held(6_000, made.scope.environment_id):
            with budget.held(3_500, made.scope.environment_id):
                assert (await made.publish("orders", message, token=other)).status == 429
            assert (await made.publish("orders", message)).status == 429
            assert (await made.publish("orders", message, token=other)).status == 200
        assert budget.used == 0
