"""Audit records over HTTP: which calls leave one, and who may read them."""

from __future__ import annotations

from typing import Any

from lakelog.model.token import Right
from tests.unit.server.harness import World, world

CONSUME = {"topic": "orders", "group": "billing", "owner": "w"}


async def _records(made: World, query: str = "") -> list[dict[str, Any]]:
    reply = await made.call("GET", "/v1/audit", query=query)
    assert reply.status == 200, reply.body
    found: list[dict[str, Any]] = reply.json["records"]
    return found


async def test_a_change_is_recorded_with_its_caller_and_both_states() -> None:
    async with world() as made:
        await made.call("POST", "/v1/consume", json=CONSUME, client=("10.1.2.3", 5))
        headers = {"x-request-id": "r1"}
        altered = {"window": 50}
        await made.call("PATCH", "/v1/groups/billing", json=altered, headers=headers, client=("10.1.2.3", 5))
        change, created = await _records(made)
        assert (created["operation"], created["objects"]) == ("create_group", {"group": "billing"})
        assert (created["actor_kind"], created["actor_name"], created["address"]) == ("token", "test", "10.1.2.3")
        assert (change["operation"], change["text"], change["outcome"]) == (
            "alter_group",
            "altered group billing",
            "done",
        )
        assert (change["before"], change["after"]) == ({"window": created["after"]["window"]}, {"window": 50})
        assert (change["request_id"], change["address"], change["given"]) == ("r1", "10.1.2.3", {"window": "50"})
        assert made.token not in str([change, created])


async def test_every_kind_of_change_is_recorded_once() -> None:
    calls: list[tuple[str, str, object]] = [
        ("POST", "/v1/topics", {"name": "new", "partitions": 4}),
        ("PATCH", "/v1/topics/new", {"partitions": 8}),
        ("POST", "/v1/topics/new/purge", None),
        ("DELETE", "/v1/topics/new", None),
        ("POST", "/v1/consume", CONSUME),
        ("POST", "/v1/groups/billing/pause", {"topic": "orders"}),
        ("POST", "/v1/groups/billing/seek", {"topic": "orders", "position": "latest"}),
        ("POST", "/v1/groups/billing/seek", {"topic": "orders", "position": "earliest", "dry_run": True}),
        ("POST", "/v1/groups/billing/dead-letters/discard", {"topic": "orders"}),
        ("POST", "/v1/topics/orders/pause", None),
        ("POST", "/v1/tokens", {"name": "child"}),
        ("DELETE", "/v1/groups/billing", None),
    ]
    async with world() as made:
        for method, path, body in calls:
            assert (await made.call(method, path, json=body)).status < 300, path
        records = (await _records(made))[::-1]
        assert [(each["operation"], each["outcome"]) for each in records] == [
            ("create_topic", "done"),
            ("alter_topic", "done"),
            ("purge_topic", "done"),
            ("delete_topic", "done"),
            ("create_group", "done"),
            ("pause_group", "done"),
            ("seek", "done"),
            ("discard_dead_letters", "done"),
            ("pause_topic", "done"),
            ("create_token", "done"),
            ("delete_group", "done"),
        ]
        by_name = {each["operation"]: each for each in records}
        assert (by_name["alter_topic"]["before"], by_name["alter_topic"]["after"]) == (
            {"partitions": 4},
            {"partitions": 8},
        )
        assert by_name["pause_group"]["after"] == {"paused": ["orders"]}
        assert by_name["seek"]["after"].keys() == by_name["seek"]["before"].keys()
        assert by_name["discard_dead_letters"]["after"] == {"discarded": 0}
        assert [each["operation"] for each in await _records(made, "group=billing&topic=orders")] == [
            "discard_dead_letters",
            "seek",
            "pause_group",
        ]


async def test_a_change_of_a_cell_that_fails_is_recorded_as_failed() -> None:
    async with world() as made:
        assert (await made.call("POST", "/v1/topics/missing/purge")).status == 404
        assert (await made.call("DELETE", "/v1/topics/missing")).status == 404
        (record,) = await _records(made)
        assert (record["operation"], record["outcome"]) == ("purge_topic", "failed")
        assert "does not exist" in record["after"]["error"]


async def test_a_refusal_is_recorded_once_a_minute() -> None:
    async with world() as made:
        reader = await made.make_token(frozenset({Right.READ}))
        for _ in range(3):
            assert (await made.call("DELETE", "/v1/topics/orders", token=reader)).status == 403
        assert (await made.call("GET", "/v1/audit", token=reader)).status == 403
        listing, record = await _records(made)
        assert (record["operation"], record["outcome"], record["objects"]) == (
            "delete_topic",
            "refused",
            {"topic": "orders"},
        )
        assert record["text"] == "lacked the right manage"
        assert listing["operation"] == "list_audit"
