"""The routes about topics."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.server.harness import world


async def test_create_and_describe() -> None:
    wanted = {
        "name": "new",
        "partitions": 3,
        "retention": {"max_age_ms": 86_400_000, "max_count": 10, "max_bytes": 1000},
        "key_field": "account_id",
        "idempotency_memory_ms": 3_600_000,
        "tags": ["a", "b"],
        "metadata": {"owner": "shop"},
    }
    async with world() as made:
        created = await made.call("POST", "/v1/topics", json=wanted)
        await made.publish("new", {"value": 1, "partition": 2})
        described = await made.call("GET", "/v1/topics/new")
    assert created.status == 201
    shape = described.json
    assert {name: shape[name] for name in wanted} == wanted
    assert [(p["partition"], p["log_start"], p["high_watermark"]) for p in shape["partition_list"]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 1),
    ]
    assert shape["epoch"] == 0
    assert shape["created_at"].endswith("Z")
    assert created.json["partition_list"] is None


async def test_creating_twice() -> None:
    async with world() as made:
        refused = await made.call("POST", "/v1/topics", json={"name": "orders"})
        found = await made.call("POST", "/v1/topics", json={"name": "orders", "if_missing": True})
    assert (refused.status, refused.json["code"]) == (409, "topic_exists")
    assert (found.status, found.json["partitions"]) == (201, 4)


async def test_listing_in_pages() -> None:
    async with world() as made:
        for name in ("b", "a", "c"):
            await made.call("POST", "/v1/topics", json={"name": name})
        first = await made.call("GET", "/v1/topics", query="limit=2")
        second = await made.call("GET", "/v1/topics", query=f"limit=3&after={first.json['next']}")
        wrong = await made.call("GET", "/v1/topics", query="after=%00")
    assert [topic["name"] for topic in first.json["topics"]] == ["a", "b"]
    assert [topic["name"] for topic in second.json["topics"]] == ["c", "orders"]
    assert second.json["next"] is None
    assert wrong.status == 422


async def test_altering_changes_only_what_is_named() -> None:
    async with world() as made:
        await made.call("POST", "/v1/topics", json={"name": "new", "tags": ["a"], "key_field": "id"})
        grown = await made.call("PATCH", "/v1/topics/new", json={"partitions": 4, "retention": {"max_count": 5}})
        cleared = await made.call("PATCH", "/v1/topics/new", json={"key_field": None, "metadata": {"a": "b"}})
        fewer = await made.call("PATCH", "/v1/topics/new", json={"partitions": 2})
        missing = await made.call("PATCH", "/v1/topics/missing", json={})
    assert (grown.json["partitions"], grown.json["epoch"], grown.json["tags"]) == (4, 1, ["a"])
    assert grown.json["retention"] == {"max_count": 5}
    assert (cleared.json["key_field"], cleared.json["metadata"]) == (None, {"a": "b"})
    assert cleared.json["retention"] == {"max_count": 5}
    assert fewer.status == 422
    assert missing.status == 404


async def test_purge_removes_and_offsets_go_on() -> None:
    async with world() as made:
        await made.publish("orders", *({"value": number, "partition": 1} for number in range(3)))
        purged = await made.call("POST", "/v1/topics/orders/purge")
        after = await made.publish("orders", {"value": 4, "partition": 1})
        fetched = await made.fetch("orders", 1, "offset=0")
    assert purged.json["removed"] == 3
    assert purged.json["partitions"][1]["log_start"] == 3
    assert after.json["results"][0]["offset"] == 3
    assert fetched.status == 416


async def test_delete_and_recreate() -> None:
    async with world() as made:
        await made.publish("orders", {"value": 1, "partition": 0})
        deleted = await made.call("DELETE", "/v1/topics/orders")
        again = await made.call("DELETE", "/v1/topics/orders")
        await made.call("POST", "/v1/topics", json={"name": "orders"})
        fetched = await made.fetch("orders", 0)
    assert (deleted.status, deleted.body, again.status) == (204, b"", 404)
    assert "content-length" not in deleted.headers
    assert fetched.json["messages"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"name": "Bad Name"},
        {"name": "x", "partitions": 0},
        {"name": "x", "partitions": 10_001},
        {"name": "x", "retention": {"max_age_ms": 2**62}},
        {"name": "x", "retention": {"max_count": 0}},
        {"name": "x", "idempotency_memory_ms": 1},
        {"name": "x", "idempotency_memory_ms": 2**62},
        {"name": "x", "tags": ["a"] * 65},
        {"name": "x", "tags": ["\0"]},
        {"name": "x", "metadata": {"a\0": "b"}},
        {"name": "x", "metadata": {"a": "b" * 20_000}},
        {"name": "x", "key_field": "\0"},
        {"name": "x", "key_field": "k" * 2000},
        {"name": "x", "unknown": 1},
        {},
        [],
        "text",
    ],
)
async def test_bad_topics_are_refused(body: Any) -> None:
    async with world() as made:
        reply = await made.call("POST", "/v1/topics", json=body)
    assert reply.status == 422
    assert reply.json["code"] in ("invalid_request", "invalid_name")


async def test_a_body_has_to_be_json() -> None:
    async with world() as made:
        created = await made.call("POST", "/v1/topics", json={"name": "x"}, headers={"content-type": "text/plain"})
        altered = await made.call("PATCH", "/v1/topics/orders", body=b"{}", headers={"content-type": ""})
    assert (created.status, altered.status) == (415, 415)
