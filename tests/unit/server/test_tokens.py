"""Child tokens over HTTP, and what a token with the right to inspect sees."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakelog.model.token import MAX_CHILDREN, Right, hash_secret, new_secret, new_token
from lakelog.server import auth
from tests.unit.server.harness import Reply, World, world

MARK = "0f" * 16
FAIL = {"topic": "orders", "group": "billing", "owner": "w1", "partition": 0, "offset": 0, "kind": "fatal"}


async def _child(made: World, *, token: str = "", **given: object) -> Reply:
    return await made.call("POST", "/v1/tokens", json={"name": "console", **given}, token=token)


def _in(reply: Reply, name: str) -> timedelta:
    return datetime.fromisoformat(reply.json[name]) - datetime.now(UTC)


async def test_a_child_has_the_rights_of_its_parent_or_fewer_for_twelve_hours() -> None:
    async with world() as made:
        parent = await made.make_token(frozenset({Right.READ, Right.INSPECT}))
        same, fewer = await _child(made, token=parent), await _child(made, token=parent, rights=["inspect"])
        assert (same.status, same.json["rights"], fewer.json["rights"]) == (201, ["read", "inspect"], ["inspect"])
        assert timedelta(hours=11, minutes=59) < _in(same, "expires_at") <= timedelta(hours=12)
        assert (await made.call("GET", "/v1/topics", token=fewer.json["secret"])).status == 200
        assert (await made.fetch("orders", token=fewer.json["secret"])).status == 403
        assert (await made.fetch("orders", token=same.json["secret"])).status == 200
        more = await _child(made, token=parent, rights=["inspect", "manage"])
        assert (more.status, more.json["code"]) == (403, "not_allowed")


async def test_a_child_never_outlives_its_parent() -> None:
    async with world() as made:
        parent = await made.make_token(expires_at=datetime.now(UTC) + timedelta(minutes=5))
        assert _in(await _child(made, token=parent), "expires_at") <= timedelta(minutes=5)
        shorter = await _child(made, token=parent, expires_in_ms=60_000)
        assert _in(shorter, "expires_at") <= timedelta(minutes=1)
        assert (await _child(made, expires_in_ms=12 * 3_600_000 + 1)).status == 422


async def test_a_child_cannot_create_tokens() -> None:
    async with world() as made:
        child = (await _child(made)).json["secret"]
        assert (await _child(made, token=child)).status == 403


async def test_a_child_is_refused_when_its_parent_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as made:
        parent = await made.make_token()
        child = (await _child(made, token=parent)).json["secret"]
        assert (await made.call("GET", "/v1/topics", token=child)).status == 200
        found = await made.engine.catalog.token_find(hash_secret(parent))
        assert found is not None and await made.engine.catalog.token_revoke(found[0], found[1].id)
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + auth.POSITIVE_SECONDS + 1)
        assert (await made.call("GET", "/v1/topics", token=child)).status == 401


async def test_a_caller_lists_and_revokes_its_own_children_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as made:
        reader, other = [await made.make_token(frozenset({Right.READ})) for _ in range(2)]
        mine, its = await _child(made, token=reader), await _child(made, token=other)
        listed = (await made.call("GET", "/v1/tokens", token=reader)).json
        assert [each["id"] for each in listed["tokens"]] == [mine.json["id"]]
        assert listed["current"]["id"] == mine.json["parent"]
        assert "secret" not in listed["tokens"][0]
        assert (await made.call("DELETE", f"/v1/tokens/{its.json['id']}", token=reader)).status == 404
        assert (await made.call("DELETE", f"/v1/tokens/{mine.json['id']}", token=reader)).status == 204
        # A child can end itself, as a person who logs out does.
        own = await made.call("DELETE", f"/v1/tokens/{its.json['id']}", token=its.json["secret"])
        assert own.status == 204
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + auth.POSITIVE_SECONDS + 1)
        for child in (mine, its):
            assert (await made.call("GET", "/v1/topics", token=child.json["secret"])).status == 401


async def test_the_right_to_manage_revokes_any_child_and_no_token_of_the_database() -> None:
    async with world() as made:
        reader = await made.make_token(frozenset({Right.READ}))
        child = (await _child(made, token=reader)).json
        listed = (await made.call("GET", "/v1/tokens")).json
        assert {each["id"] for each in listed["tokens"]} == {child["id"], child["parent"], listed["current"]["id"]}
        assert (await made.call("DELETE", f"/v1/tokens/{child['parent']}")).status == 403
        assert (await made.call("DELETE", f"/v1/tokens/{child['id']}")).status == 204


async def test_the_children_of_a_token_are_bounded() -> None:
    async with world() as made:
        parent = (await made.call("GET", "/v1/tokens")).json["current"]["id"]
        ends = datetime.now(UTC) + timedelta(hours=1)
        for _ in range(MAX_CHILDREN):
            token = new_token("many", (Right.READ,), datetime.now(UTC), ends, parent)
            await made.engine.catalog.token_create(made.scope, token, hash_secret(new_secret()))
        refused = await _child(made)
        assert (refused.status, refused.json["code"]) == (409, "conflict")


async def test_inspecting_shows_dead_letters_without_their_messages() -> None:
    async with world() as made:
        inspector = await made.make_token(frozenset({Right.INSPECT}))
        message = {"key": "secret", "value": {"n": "secret"}, "headers": {"h": "secret"}, "correlation_id": "secret"}
        await made.publish("orders", {**message, "partition": 0})
        await made.publish(
            "orders",
            {**message, "partition": 1, "delay_ms": 3_600_000, "schedule_id": MARK, "idempotency_key": "secret"},
        )
        ask = {"topic": "orders", "group": "billing", "owner": "w1", "start_from": "earliest"}
        assert (await made.call("POST", "/v1/consume", json=ask)).status == 200
        assert (await made.call("POST", "/v1/nack", json={**FAIL, "reason": "bad secret"})).status == 204
        path = "/v1/groups/billing/dead-letters"

        async def look(path: str, token: str = inspector) -> Any:
            reply = await made.call("GET", path, token=token)
            assert reply.status == 200, reply.body
            return reply

        for each in (path, "/v1/topics/orders/scheduled"):
            assert b"secret" in (await look(each, made.token)).body
            hidden = await look(each)
            assert b"secret" not in hidden.body
            assert b"orders" in hidden.body
        [letter] = (await look(path)).json["dead_letters"]
        assert letter["failures"] == 1 and letter["error"].startswith("Hidden")
        assert b"secret" not in (await look(f"{path}/{letter['id']}")).body
        # Whether a filter matches would tell the value.
        asked = await made.call("GET", path, query="where=value.n%20=%20'secret'", token=inspector)
        assert asked.status == 403
        both = await made.make_token(frozenset({Right.INSPECT, Right.READ}))
        assert b"secret" in (await look(path, both)).body
