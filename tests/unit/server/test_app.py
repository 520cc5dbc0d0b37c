"""Rules for all calls: paths, problems, ids, logs, metrics, traces, shutdown."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from lakelog.errors import ConfigurationError, Unavailable, all_errors
from lakelog.model.token import Right
from lakelog.server import METRICS, ServerSettings, app, calls, configure_logging, create_app, traffic
from lakelog.server.problems import error_response
from lakelog.storage.memory import MemoryStore
from lakelog.wire.operations import OPERATIONS
from tests.unit.server.harness import World, world


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/topics/orders/messages", {"POST"}),
        ("DELETE", "/v1/topics/orders/partitions/0/messages", {"GET"}),
        ("PUT", "/v1/topics/orders", {"GET", "PATCH", "DELETE"}),
        ("DELETE", "/v1/topics", {"GET", "POST"}),
        ("POST", "/healthz", {"GET"}),
    ],
)
async def test_other_methods_are_told_which_there_are(method: str, path: str, allowed: set[str]) -> None:
    async with world() as made:
        reply = await made.call(method, path)
    assert reply.status == reply.json["status"] == 405
    assert set(reply.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    "path",
    ["", "/", "/messages", "//", "/v1", "/v1/topics/", "/v2/topics", "/v1/topics/a/b/messages", "/v1/x/y/messages"],
)
async def test_other_paths_are_a_404(path: str) -> None:
    async with world() as made:
        reply = await made.call("POST", path)
    assert (reply.status, reply.json["code"]) == (404, "not_found")
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "query", "reason"),
    [
        ("/v1/marks", "until=0.5", "`until` must be a time such as"),
        ("/v1/audit", "since=1700000000", "`since` must be a time such as"),
        ("/v1/marks", "limit=null", "Expected `int"),
        ("/v1/marks", "since=null", "`since` must not be null"),
        ("/v1/topics/orders/loads/%C2%84", "", "Load name"),
    ],
)
async def test_what_the_description_does_not_allow_is_refused(path: str, query: str, reason: str) -> None:
    async with world() as made:
        await made.call("POST", "/v1/topics", body={"name": "orders"})
        reply = await made.call("GET", path, query=query)
    assert reply.status in (400, 422) and reason in reply.json["detail"], reply.json


async def test_the_callers_request_id_comes_back() -> None:
    async with world() as made:
        given = await made.call("GET", "/nowhere", headers={"x-request-id": "abc-1.2_3"})
        made_up = await made.call("GET", "/healthz")
        other = await made.call("GET", "/healthz")
        insane = await made.call("GET", "/nowhere", headers={"x-request-id": "a b\t" + "x" * 300})
    assert given.headers["x-request-id"] == given.json["request_id"] == "abc-1.2_3"
    assert made_up.headers["x-request-id"] != other.headers["x-request-id"]
    assert " " not in insane.headers["x-request-id"] and len(insane.headers["x-request-id"]) < 64


class _Broken(MemoryStore):
    async def heads_read(self, pids: Any) -> Any:
        raise RuntimeError("the password is hunter2")


async def test_an_unexpected_error_tells_nothing_of_the_inside(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    async with world(store=_Broken()) as made:
        reply = await made.call("GET", "/v1/topics/orders", headers={"x-request-id": "find-me"})
    assert (reply.status, reply.json["code"], reply.json["request_id"]) == (500, "internal", "find-me")
    assert b"hunter2" not in reply.body and b"RuntimeError" not in reply.body
    logged = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    [line] = [line for line in logged if line["event"] == "call_failed"]
    assert line["request_id"] == "find-me" and line["level"] == "error"
    assert line["message"].startswith("Call describe_topic failed (request find-me): RuntimeError: ")
    assert "hunter2" in json.dumps(line["exception"])


async def test_changes_and_refusals_are_audited(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    async with world() as made:
        await made.call("POST", "/v1/topics/orders/purge", headers={"x-request-id": "r1"})
        reader = await made.make_token(frozenset())
        await made.publish("orders", {"value": "canary"}, token=reader)
        await made.publish("orders", {"value": "canary"})
    logged = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    audited = [line for line in logged if line["logger"] == "lakelog.audit"]
    assert [(line["event"], line["status"]) for line in audited] == [("purge_topic", 200), ("publish", 403)]
    assert (audited[0]["topic"], audited[0]["project"], audited[0]["request_id"]) == ("orders", "default", "r1")
    assert [line["message"].partition(") ")[2] for line in audited] == [
        "purged topic orders (messages=0).",
        "lacks the right publish (publish, topic orders).",
    ]
    assert "canary" not in json.dumps(logged)
    assert made.token not in json.dumps(logged)


async def test_the_audit_names_what_changed_and_by_which_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lakelog.audit")
    consume = {"topic": "orders", "group": "billing", "owner": "w"}
    changes: list[tuple[str, str, object]] = [
        ("POST", "/v1/topics", {"name": "new", "partitions": 4, "retention": {"max_age_ms": 1000}}),
        ("PATCH", "/v1/topics/new", {"partitions": 8, "tags": ["a"]}),
        ("DELETE", "/v1/topics/new", None),
        ("POST", "/v1/consume", consume),
        ("PATCH", "/v1/groups/billing", {"window": 50}),
        ("POST", "/v1/groups/billing/pause", {"topic": "orders"}),
        ("POST", "/v1/groups/billing/seek", {"topic": "orders", "position": "latest"}),
        ("POST", "/v1/groups/billing/seek", {"topic": "orders", "position": "earliest", "dry_run": True}),
        ("POST", "/v1/groups/billing/skip", {"topic": "orders", "partition": 0, "offset": 0}),
        ("POST", "/v1/groups/billing/skip", {"topic": "orders", "partition": 0, "offset": 0, "dry_run": True}),
        ("POST", "/v1/groups/billing/dead-letters/discard", {"topic": "orders"}),
        ("DELETE", "/v1/groups/billing", None),
    ]
    async with world() as made:
        for method, path, body in changes:
            assert (await made.call(method, path, json=body)).status < 300, path
    said = [line.removeprefix("Token test (").partition(") ")[2] for line in caplog.messages]
    assert said == [
        'created topic new (partitions=4, retention={"max_age_ms":1000}).',
        'altered topic new (partitions=8, tags=["a"]).',
        "deleted topic new.",
        "created group billing.",
        "altered group billing (window=50).",
        "paused group billing (topic=orders).",
        "moved group billing in topic orders (position=latest).",
        "skipped messages of topic orders for group billing (partition=0, offset=0, messages=0).",
        "discarded dead letters of group billing (topic=orders, messages=0).",
        "deleted group billing.",
    ]


async def test_new_groups_and_replaced_members_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    """A consume or join needs the right to read only, but it creates its group, and can remove other members."""
    caplog.set_level(logging.INFO, "lakelog.audit")
    join = {"topics": ["orders"], "member_id": "a", "kind": "cursor"}
    async with world() as made:
        for body in (join, {**join, "member_id": "b"}, {**join, "member_id": "c", "replace": True}):
            assert (await made.call("POST", "/v1/groups/copy/join", json=body)).status == 200
        for _ in range(2):
            consume = {"topic": "orders", "group": "billing", "owner": "w"}
            assert (await made.call("POST", "/v1/consume", json=consume)).status == 200
    records = [record for record in caplog.records if record.name == "lakelog.audit"]
    assert [record.getMessage().removeprefix("Token test (").partition(") ")[2] for record in records] == [
        "created group copy.",
        'replaced the members of group copy (topics=["orders"], member_id=c, kind=cursor, replaces=true).',
        "created group billing.",
    ]
    assert [(record.event, record.fields["group"]) for record in records] == [  # type: ignore[attr-defined]
        ("create_group", "copy"),
        ("join", "copy"),
        ("create_group", "billing"),
    ]


async def test_slow_work_is_counted() -> None:
    async with world() as made:
        before = await _totals(made)
        await made.publish("orders", {"value": 1, "partition": 0}, {"value": 2, "partition": 0})
        ask = {"topic": "orders", "group": "billing", "owner": "w1", "start_from": "earliest"}
        assert (await made.call("POST", "/v1/consume", json=ask)).status == 200
        after = await _totals(made)
        assert after['lakelog_commits_total{kind="messages"}'] - before['lakelog_commits_total{kind="messages"}'] == 1
        items = 'lakelog_commit_items_total{kind="messages"}'
        assert after[items] - before[items] == 2
        assert after['lakelog_commits_total{kind="groups"}'] > before['lakelog_commits_total{kind="groups"}']
        assert after['lakelog_commit_seconds_total{kind="groups"}'] > 0


async def _totals(made: World) -> dict[str, float]:
    page = (await made.call("GET", "/metrics", token=None)).body.decode()
    return {name: float(value) for name, value in re.findall(r"^(lakelog\S+) (\S+)$", page, re.MULTILINE)}


def test_every_operation_that_needs_manage_is_audited_or_changes_nothing() -> None:
    reads = {"tierable", "unverified_segments", "look", "list_runs", "list_tokens", "list_audit", "report_run"}
    reads |= {"find_load", "iceberg_changes"}
    reads.add("create_mark")  # An audit record itself.
    managed = {each.name for each in OPERATIONS if isinstance(each.rights, frozenset) and Right.MANAGE in each.rights}
    assert managed - {each.name for each in OPERATIONS if each.audit} == reads


async def test_failures_of_calls_are_summarised_and_those_of_the_database_left_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Away(MemoryStore):
        error = Unavailable("The log moved.")

        async def heads_read(self, pids: Any) -> Any:
            raise self.error

    store = Away()
    async with world(store=store) as made:
        for _ in range(20):
            assert (await made.call("GET", "/v1/topics/orders")).status == 503
        assert caplog.messages == ["Calls: describe_topic: The log moved."]
        store.error = Unavailable("PostgreSQL at db cannot be reached.", unreachable="database", database="db")
        reply = await made.call("GET", "/v1/topics/orders")
    assert len(caplog.messages) == 1
    assert (reply.json["code"], reply.json["unreachable"], reply.json["retryable"]) == ("unavailable", "database", True)
    assert reply.json["detail"] == "The server's database is not available."


def test_every_error_has_its_answer() -> None:
    for kind in all_errors():
        answer = error_response(kind(), b"id")
        problem = json.loads(answer.body)
        assert problem["status"] == answer.status
        assert problem["request_id"] == "id"
        assert (b"retry-after" in dict(answer.headers)) == (answer.status in (429, 503))


async def test_the_settings_and_the_scope_have_to_agree() -> None:
    async with world() as made:
        with pytest.raises(ConfigurationError, match="scope for everyone"):
            create_app(made.engine, ServerSettings(authenticate=False))
        with pytest.raises(ConfigurationError, match="scope for everyone"):
            create_app(made.engine, ServerSettings(), everyone=made.scope)


async def test_too_many_calls_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MAX_IN_FLIGHT", 0)
    async with world() as made:
        reply = await made.publish("orders", {"value": 1})
    assert (reply.status, reply.headers["retry-after"]) == (429, "1")


async def test_a_body_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BODY_SECONDS", 0.05)
    async with world() as made:
        asgi = {
            "type": "http",
            "method": "POST",
            "path": "/v1/topics/orders/messages",
            "headers": [
                (b"authorization", b"Bearer " + made.token.encode()),
                (b"content-type", b"application/json"),
                (b"content-length", b"1000000"),
            ],
        }
        pieces = [{"type": "http.request", "body": b"{", "more_body": True}]
        sent: list[Any] = []

        async def receive() -> Any:
            if not pieces:
                assert made.engine.budget.used == 1_000_000
                await asyncio.Event().wait()
            return pieces.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        await made.app(asgi, receive, send)
        assert made.engine.budget.used == 0
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_a_caller_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SEND_SECONDS", 0.05)
    async with world() as made:
        await made.publish("orders", *({"value": "x" * 1000, "partition": 0} for _ in range(600)))
        asgi = {
            "type": "http",
            "method": "GET",
            "path": "/v1/topics/orders/partitions/0/messages",
            "query_string": b"",
            "headers": [(b"authorization", b"Bearer " + made.token.encode())],
        }

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                assert made.engine.budget.used > 600_000
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await made.app(asgi, receive, send)
        assert made.engine.budget.used == 0
        assert made.app.traffic.in_flight == 0


async def test_answers_of_a_draining_server_close_their_connections() -> None:
    async with world() as made:
        before = await made.publish("orders", {"value": 1})
        made.drain.begin()
        after = await made.publish("orders", {"value": 1})
    assert "connection" not in before.headers
    assert (after.status, after.headers["connection"]) == (200, "close")


async def test_metrics_count() -> None:
    async with world() as made:
        await made.publish("orders", {"value": 1, "partition": 0}, {"value": 2, "partition": 9})
        for _ in range(2):
            await made.publish("orders", {"value": 1, "partition": 0, "idempotency_key": "k"})
        await made.fetch("orders", 0)
        await made.call("GET", "/v1/topics/canary-topic")
        page = await made.call("GET", "/metrics", token=None)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.body.decode())
        for sample in family.samples
    }
    assert found["lakelog_publish_messages_total",] == 2
    assert found["lakelog_publish_duplicates_total",] == 1
    assert found["lakelog_publish_refused_total",] == 1
    assert found["lakelog_publish_seconds_count",] == 3
    assert found["lakelog_fetch_messages_total",] == 2
    assert found["lakelog_http_requests_total", "publish", "207"] == 1
    assert found["lakelog_http_requests_total", "describe_topic", "404"] == 1
    assert found["lakelog_memory_limit_bytes",] == 256 << 20
    assert found["lakelog_http_in_flight",] == 1
    assert b"canary" not in page.body


async def test_the_table_of_metrics_is_complete() -> None:
    async with world() as made:
        page = await made.call("GET", "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(page.body.decode())}
    assert {name.removesuffix("_total") for name in METRICS} == set(families)
    assert {family.documentation for family in families.values()} == set(METRICS.values())


async def test_a_span_continues_the_callers_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    async with world() as made:
        parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        await made.publish("orders", {"value": 1}, headers=parent)
        await made.publish("missing", {"value": 1})
        await made.call("GET", "/healthz")
    ok, missing = exporter.get_finished_spans()
    assert ok.name == "POST /v1/topics/{topic}/messages"
    assert ok.parent is not None and format(ok.context.trace_id, "032x") == "0af7651916cd43dd8448eb211c80319c"
    assert ok.attributes is not None and ok.attributes["http.response.status_code"] == 200
    assert missing.parent is None and missing.attributes is not None
    assert missing.attributes["http.response.status_code"] == 404
    assert not missing.events


async def test_without_a_provider_there_are_no_spans() -> None:
    async with world() as made:
        assert not made.app._telemetry.enabled


async def test_other_protocols_are_closed() -> None:
    async with world() as made:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await made.app({"type": "websocket", "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close"}]
