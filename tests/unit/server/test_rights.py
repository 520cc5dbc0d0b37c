"""Every route with every kind of caller: generated from the routing table, so that no route can be forgotten."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakelog.batches import encode, from_messages
from lakelog.errors import ConfigurationError, NotAllowed, NotAuthenticated
from lakelog.model.message import Message
from lakelog.model.token import Right, new_secret
from lakelog.server import Drain, auth, check_exposure
from lakelog.server.app import App
from lakelog.server.auth import Authenticator, Grant, authorise
from lakelog.server.metrics import Metrics
from lakelog.server.routing import Row
from lakelog.storage.memory import MemoryCatalog
from lakelog.wire.frames import MEDIA_TYPE, NO_PRODUCER, PublishFrame, write_publish
from lakelog.wire.operations import OPERATIONS, PUBLIC
from tests.unit.server.harness import ALL, Reply, World, world

HELD = {"topic": "orders", "group": "billing", "owner": "w1", "partition": 0, "offset": 0}
SEGMENT = {
    "partition": 0,
    "first": 0,
    "end": 1,
    "path": "e1/t1/p00000/00000000000000000000-00000000000000000001-0123456789abcdef.parquet",
    "bytes": 1,
    "file_hash": "00",
    "content_hash": "00",
    "first_at": "2026-01-31T12:00:00Z",
    "last_at": "2026-01-31T12:00:00Z",
    "epoch": 0,
}
BODIES: dict[str, Any] = {
    "publish": {"messages": [{"value": "canary", "partition": 0}]},
    "create_topic": {"name": "fresh"},
    "create_token": {"name": "fresh"},
    "create_mark": {"text": "deploy 1.4"},
    "alter_topic": {"tags": ["changed"]},
    "set_schema": {"schema": {}},
    "check_schema": {"schema": {}},
    "consume": {"topic": "orders", "group": "billing", "owner": "w2"},
    "ack": HELD,
    "ack_cumulative": HELD,
    "nack": HELD,
    "discard": HELD,
    "extend": HELD,
    "answers": {"owner": "w1", "answers": [{"verb": "ack", "partition": 0, "offsets": [0]}]},
    "join": {"topics": ["orders"], "member_id": "m2"},
    "heartbeat": {"member_id": "m1", "generation": 1},
    "leave": {"member_id": "m1"},
    "alter_group": {"window": 5},
    "seek": {"topic": "orders", "position": "earliest"},
    "skip": {"topic": "orders", "partition": 0, "offset": 1},
    "commit": {"topic": "orders", "positions": [{"partition": 0, "offset": 0}]},
    "redrive": {"topic": "orders"},
    "discard_dead_letters": {"topic": "orders"},
    "retry_rejected": {"topic": "orders"},
    "discard_rejected": {"topic": "orders"},
    "purge_dead_letters": {"older_than_ms": 0},
    "register_segments": {"segments": [SEGMENT]},
    "verified_segments": {"segments": [SEGMENT]},
    "unregister_segments": {"segments": [SEGMENT]},
    "load": {"name": "history", "incarnation": 1, "parts": [{"partition": 0, "first": 0, "fingerprint": "0a"}]},
    "replace_segments": {"old": [SEGMENT], "new": [SEGMENT]},
    "look": {"paths": ["e1/a"]},
    "swept": {"paths": ["e1/a"]},
    "commit_iceberg": {
        "incarnation": 1,
        "version": 0,
        "metadata": "e1/t1/metadata/1.metadata.json",
        "added": ["e1/t1/metadata/1.metadata.json"],
        "removed": [],
        "oldest": 1,
    },
    "decide": {"write_id": "w", "attempts": [], "count": 0, "incarnation": 1, "epoch": 0},
    "begin_run": {"run_id": "0123456789abcdef", "topic": "orders"},
    "report_run": {"progress": {}},
    "end_run": {"state": "done", "progress": {}},
}
QUERIES = {
    "push": "topic=orders&group=billing&owner=w2",
    "positions": "topic=orders",
    "stage": "write_id=w&attempt=a&incarnation=1&epoch=0",
}
STAGED = write_publish(
    [
        PublishFrame(
            partition=0,
            epoch=0,
            count=1,
            sequence=0,
            producer=NO_PRODUCER,
            payload=encode(from_messages([Message(value=b"secret")])),
        )
    ]
)
REFUSED = {
    "commit": 409,  # It is no cursor group.
    "delete_group": 409,  # It has a member.
    "register_segments": 409,  # There is no object store.
    "load": 409,
    "report_run": 409,  # It does not go on.
    "end_run": 404,
    "iceberg_table": 404,  # The topic has no table.
    "iceberg_has_table": 404,
}
MakeToken = Callable[[World], Awaitable[str | None]]


async def _no_token(made: World) -> None:
    return None


async def _wrong_token(made: World) -> str:
    return new_secret()


async def _expired(made: World) -> str:
    return await made.make_token(expires_at=datetime.now(UTC) - timedelta(seconds=1))


def _with(*rights: Right) -> MakeToken:
    async def make(made: World) -> str:
        return await made.make_token(frozenset(rights))

    return make


def _elsewhere(project: str, environment: str) -> MakeToken:
    async def make(made: World) -> str:
        return await made.make_token(ALL, scope=await made.other_scope(project, environment))

    return make


CALLERS: dict[str, MakeToken] = {
    "no token": _no_token,
    "wrong token": _wrong_token,
    "expired token": _expired,
    "read only": _with(Right.READ),
    "publish only": _with(Right.PUBLISH),
    "manage only": _with(Right.MANAGE),
    "inspect only": _with(Right.INSPECT),
    "metrics only": _with(Right.METRICS),
    "no right": _with(),
    "other environment": _elsewhere("default", "other"),
    "other project": _elsewhere("other", "default"),
}
MARK = "0f" * 16
RIGHTS = {f"{right} only": right for right in Right}


async def _call(made: World, route: Row, token: str | None, topic: str = "orders") -> Reply:
    found = await made.engine.topics.describe(made.scope, "orders")
    path = route.path.format(
        name="history",
        topic=topic,
        partition=0,
        group="billing",
        message_id=f"{found.topic.incarnation}-{f'0-s{MARK}' if route.name == 'cancel_scheduled' else '1-0'}",
        pipeline="tier",
        run_id="0123456789abcdef",
        namespace="default.default",
        token_id=await _child(made) if "{token_id}" in route.path else "",
    )
    operation = route.name.removeprefix("short_")
    hung_up = asyncio.Event()
    if operation == "push":
        hung_up.set()
    query = QUERIES.get(operation, "")
    if operation == "stage":
        headers = {"content-type": MEDIA_TYPE}
        return await made.call(route.method, path, query=query, body=STAGED, headers=headers, token=token)
    return await made.call(route.method, path, query=query, json=BODIES.get(operation), token=token, gone=hung_up)


async def _child(made: World) -> str:
    """Return the id of a child of the token with all rights."""
    made_token = await made.call("POST", "/v1/tokens", json={"name": "console"})
    return str(made_token.json["id"])


async def _work(made: World) -> None:
    """A group with a member, a lease of partition 0, a dead letter of partition 1, and a delayed message."""
    await made.publish("orders", {"value": "secret", "partition": 1})
    await made.publish("orders", {"value": "secret", "partition": 0, "delay_ms": 3_600_000, "schedule_id": MARK})
    ask = {"topic": "orders", "group": "billing", "owner": "w1", "max_messages": 9, "start_from": "earliest"}
    assert (await made.call("POST", "/v1/consume", json=ask)).status == 200
    failed = await made.call("POST", "/v1/nack", json={**HELD, "partition": 1, "kind": "fatal"})
    assert failed.status == 204, failed.body
    joined = await made.call("POST", "/v1/groups/billing/join", json={"topics": ["orders"], "member_id": "m1"})
    assert joined.status == 200, joined.body


def _expected(route: Row, caller: str) -> set[int]:
    """The statuses that this caller may see."""
    fine = {REFUSED[route.name]} if route.name in REFUSED else set(route.statuses)
    if route.rights is PUBLIC:
        return fine
    if caller in ("no token", "wrong token", "expired token"):
        return {401}
    assert isinstance(route.rights, frozenset)
    if caller in RIGHTS:
        if route.name == "revoke_token" and RIGHTS[caller] is not Right.MANAGE:
            return {404}  # It is the child of another token.
        return fine if RIGHTS[caller] in route.rights else {403}
    if caller == "no right":
        return {403}
    # Another scope has no topic and no group of that name; and who is not a member has left already. A scope without
    # rejected messages changes none.
    if route.name in ("leave", "short_leave", "retry_rejected", "discard_rejected"):
        return fine
    if route.name in ("look", "swept"):
        return {422}  # They are files of another environment.
    has_name = any(
        name in route.path for name in ("{topic}", "{group}", "{token_id}", "{namespace}")
    ) or "topic" in str(route.example)
    return {404} if route.name != "create_topic" and (has_name or route.name in ("push", "message_story")) else fine


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", OPERATIONS, ids=lambda route: route.name)
async def test_every_route_with_every_caller(route: Row, caller: str) -> None:
    async with world() as made:
        await made.publish("orders", {"value": "secret", "partition": 0})
        await _work(made)
        if route.name.endswith("_schema"):
            assert (await made.call("PUT", "/v1/topics/orders/schema", json={"schema": True})).status == 200
        before = await made.engine.topics.describe(made.scope, "orders")
        reply = await _call(made, route, await CALLERS[caller](made))
        assert reply.status in _expected(route, caller), reply.body
        assert reply.status < 500
        if reply.status in (401, 403, 404):
            assert b"secret" not in reply.body
            after = await made.engine.topics.describe(made.scope, "orders")
            assert replace(after, now=before.now) == before
        if caller in ("inspect only", "metrics only", "manage only") and route.name != "openapi":
            assert b"secret" not in reply.body.replace(b'"secret":"lkl_', b"")
        if reply.status in (401, 403, 404) or caller.startswith("other"):
            held = await made.call("GET", "/v1/groups/billing/leases")
            assert [lease["offsets"] for lease in held.json["leases"]] == [[[0, 0]]]
            group = await made.call("GET", "/v1/groups/billing")
            assert [member["member_id"] for member in group.json["members"]] == ["m1"]
        if reply.status == 401:
            assert reply.headers["www-authenticate"] == "Bearer"


async def test_topics_of_one_name_never_meet() -> None:
    async with world() as made:
        tokens = {}
        for project, environment in (("default", "other"), ("other", "default")):
            scope = await made.other_scope(project, environment)
            tokens[f"{project}-{environment}"] = await made.make_token(ALL, scope=scope)
        for name, token in tokens.items():
            created = await made.call("POST", "/v1/topics", json={"name": "orders", "tags": [name]}, token=token)
            assert created.status == 201
            await made.publish("orders", {"value": name, "partition": 0, "idempotency_key": "same"}, token=token)
        await made.publish("orders", {"value": "mine", "partition": 0, "idempotency_key": "same"})
        for name, token in {**tokens, "mine": made.token}.items():
            fetched = await made.fetch("orders", 0, token=token)
            assert [message["value"] for message in fetched.json["messages"]] == [name]
            listed = await made.call("GET", "/v1/topics", token=token)
            assert [topic["tags"] for topic in listed.json["topics"]] == [[] if name == "mine" else [name]]
        deleted = await made.call("DELETE", "/v1/topics/orders", token=tokens["other-default"])
        assert deleted.status == 204
        assert (await made.fetch("orders", 0, token=tokens["default-other"])).status == 200
        assert (await made.fetch("orders", 0)).status == 200


async def test_without_authentication_everybody_is_in_the_given_scope() -> None:
    async with world(authenticate=False) as made:
        assert (await made.publish("orders", {"value": 1}, token=None)).status == 200
        assert (await made.publish("orders", {"value": 1}, token="whatever")).status == 200


def _table(*routes: Row) -> Callable[[], App]:
    async def handler(call: Any) -> Any:
        raise AssertionError

    def make() -> App:
        handlers = {route.name: handler for route in OPERATIONS if route.name not in ("metrics", "openapi")}
        engine: Any = type("Engine", (), {"audit": None, "budget": None, "publisher": None})
        return App(engine, handlers, Authenticator(MemoryCatalog()), Metrics(), Drain(), routes)

    return make


def test_a_route_without_a_rule_stops_the_start() -> None:
    _table(*OPERATIONS)()
    with pytest.raises(ConfigurationError, match="names no right"):
        _table(*OPERATIONS[:-1], replace(OPERATIONS[-1], rights=None))()


def test_a_route_without_a_handler_stops_the_start() -> None:
    extra = replace(OPERATIONS[0], name="extra", path="/v1/extra")
    with pytest.raises(ConfigurationError, match="has no handler"):
        _table(*OPERATIONS, extra)()
    with pytest.raises(ConfigurationError, match="No operation leads to"):
        _table(*(route for route in OPERATIONS if route.name != "purge_topic"))()


async def test_the_one_function_denies_by_default() -> None:
    scope = await MemoryCatalog().scope_create("default", "default")
    everything = Grant(scope=scope, rights=ALL, token="t")
    authorise(PUBLIC, None)
    authorise(frozenset({Right.READ}), everything)
    for rule in (frozenset[Right](), None):
        with pytest.raises(NotAllowed):
            authorise(rule, everything)
    with pytest.raises(NotAuthenticated):
        authorise(frozenset({Right.READ}), None)


class _CountingCatalog(MemoryCatalog):
    looked = 0

    async def token_find(self, token_hash: bytes) -> Any:
        self.looked += 1
        return await super().token_find(token_hash)


async def test_tokens_are_looked_up_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = _CountingCatalog()
    async with world(catalog=catalog) as made:
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now)
        for _ in range(5):
            await made.publish("orders", {"value": 1})
            await made.publish("orders", {"value": 1}, token="wrong")
        assert catalog.looked == 2
        monkeypatch.setattr(time, "monotonic", lambda: now + auth.NEGATIVE_SECONDS + 0.5)
        await made.publish("orders", {"value": 1})
        await made.publish("orders", {"value": 1}, token="wrong")
        assert catalog.looked == 3
        monkeypatch.setattr(time, "monotonic", lambda: now + auth.POSITIVE_SECONDS + 2)
        await made.publish("orders", {"value": 1})
        assert catalog.looked == 4


async def test_a_revoked_token_stops_working(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as made:
        token = await made.make_token()
        assert (await made.publish("orders", {"value": 1}, token=token)).status == 200
        for known in await made.engine.catalog.token_list(made.scope):
            await made.engine.catalog.token_revoke(made.scope, known.id)
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + auth.POSITIVE_SECONDS + 1)
        assert (await made.publish("orders", {"value": 1}, token=token)).status == 401


async def test_a_token_ends_at_its_time_although_it_is_remembered() -> None:
    now = 1000.0
    catalog = MemoryCatalog()
    async with world(catalog=catalog) as made:
        token = await made.make_token(expires_at=datetime.fromtimestamp(1010, UTC))
        authenticator = Authenticator(catalog, now=lambda: now)
        header = f"Bearer {token}".encode()
        assert (await authenticator.grant(header)).scope == made.scope
        now = 1010.0
        with pytest.raises(NotAuthenticated, match="expired"):
            await authenticator.grant(header)


async def test_the_memory_of_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "CACHE_SIZE", 10)
    authenticator = Authenticator(MemoryCatalog())
    for number in range(35):
        with pytest.raises(NotAuthenticated):
            await authenticator.grant(b"Bearer wrong-%d" % number)
        assert len(authenticator._unknown) <= 10


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic abc", "Bearer \xff", "Bearer " + "x" * 600, "bearer", "token"]
)
async def test_malformed_headers_are_refused(header: str) -> None:
    async with world() as made:
        reply = await made.call("GET", "/v1/topics", headers={"authorization": header})
    assert (reply.status, reply.json["code"]) == (401, "not_authenticated")


async def test_the_scheme_may_be_written_in_any_case() -> None:
    async with world() as made:
        reply = await made.call("GET", "/v1/topics", headers={"authorization": f"bEARER  {made.token}"})
    assert reply.status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_loopback_may_be_without_authentication(host: str) -> None:
    check_exposure(host, authenticate=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_others_may_not(host: str) -> None:
    check_exposure(host, authenticate=True)
    with pytest.raises(ConfigurationError, match="loopback only"):
        check_exposure(host, authenticate=False)
