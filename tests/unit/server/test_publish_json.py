"""The JSON form of publish: what is stored, what is answered, and what is refused."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakelog.errors import OutcomeUnknown, Unavailable
from lakelog.model.limits import MAX_BODY_BYTES
from lakelog.storage.memory import MemoryStore
from tests.unit.server.harness import World, world


async def _round_trip(made: World, message: dict[str, Any]) -> dict[str, Any]:
    reply = await made.publish("orders", {"partition": 0, **message})
    assert reply.status == 200, reply.body
    offset = reply.json["results"][0]["offset"]
    fetched = await made.fetch("orders", 0, f"offset={offset}&limit=1")
    found: dict[str, Any] = fetched.json["messages"][0]
    return found


async def test_a_message_gets_its_place() -> None:
    async with world() as made:
        first = await made.publish("orders", {"value": 1, "partition": 2})
        second = await made.publish("orders", {"value": 2, "partition": 2})
    assert (first.status, second.status) == (200, 200)
    result = second.json["results"][0]
    assert (result["partition"], result["offset"]) == (2, 1)
    assert result["id"].endswith("-2-1")
    assert first.headers["content-type"] == "application/json"
    assert int(first.headers["content-length"]) == len(first.body)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"value": {"a": [1, None]}}, {"value": {"a": [1, None]}, "content_type": "application/json"}),
        ({"value": 12.5}, {"value": 12.5, "content_type": "application/json"}),
        ({"value": False}, {"value": False, "content_type": "application/json"}),
        ({"value": "straße ☃"}, {"value": "straße ☃", "content_type": "text/plain"}),
        ({"value": ""}, {"value": "", "content_type": "text/plain"}),
        (
            {"value": "text", "content_type": "application/json"},
            {"value": "text", "content_type": "application/json"},
        ),
        ({"value": None}, {"value": None}),
        ({"value_base64": "AP8="}, {"value_base64": "AP8="}),
        (
            {"value_base64": base64.b64encode(b'{"a": 1}').decode(), "content_type": "application/json"},
            {"value": {"a": 1}, "content_type": "application/json"},
        ),
        (
            {"value_base64": base64.b64encode(b"{bad").decode(), "content_type": "application/json; charset=utf-8"},
            {"value_base64": base64.b64encode(b"{bad").decode(), "content_type": "application/json; charset=utf-8"},
        ),
        (
            {"value_base64": base64.b64encode(b'"\xff"').decode(), "content_type": "application/json"},
            {"value_base64": base64.b64encode(b'"\xff"').decode(), "content_type": "application/json"},
        ),
        (
            {"value_base64": "/w==", "content_type": "text/plain"},
            {"value_base64": "/w==", "content_type": "text/plain"},
        ),
        ({"value": 1, "key": "ä"}, {"value": 1, "key": "ä", "content_type": "application/json"}),
        ({"value": 1, "key_base64": "/w=="}, {"value": 1, "key_base64": "/w==", "content_type": "application/json"}),
        (
            {"value": 1, "headers": {"source": "shop"}, "correlation_id": "c1", "idempotency_key": "k1"},
            {
                "value": 1,
                "headers": {"source": "shop"},
                "correlation_id": "c1",
                "idempotency_key": "k1",
                "content_type": "application/json",
            },
        ),
        (
            {"value": 1, "created_at": "2026-01-01T02:00:00+02:00"},
            {"value": 1, "created_at": "2026-01-01T00:00:00Z", "content_type": "application/json"},
        ),
    ],
)
async def test_what_is_published_is_fetched(sent: dict[str, Any], shown: dict[str, Any]) -> None:
    async with world() as made:
        found = await _round_trip(made, sent)
    for name in ("id", "offset", "appended_at"):
        del found[name]
    assert found == shown


async def test_a_missing_value_is_shown_as_null() -> None:
    async with world() as made:
        found = await _round_trip(made, {"value": None, "key": "k"})
    assert "value" in found and found["value"] is None


async def test_a_json_value_keeps_its_bytes() -> None:
    async with world() as made:
        body = b'{"messages":[{"partition":0,"value":{"b": 1.10,  "a":2}}]}'
        reply = await made.call(
            "POST", "/v1/topics/orders/messages", body=body, headers={"content-type": "application/json"}
        )
        fetched = await made.fetch("orders", 0)
    assert reply.status == 200
    assert b'"value":{"b": 1.10,  "a":2}' in fetched.body


async def test_expiry_is_counted_from_now() -> None:
    async with world() as made:
        found = await _round_trip(made, {"value": 1, "expires_ms": 60_000})
    assert found["expires_at"] > found["appended_at"]


@pytest.mark.parametrize("skew", [timedelta(hours=-1), timedelta(hours=1)])
async def test_a_relative_expiry_counts_from_the_time_of_the_database(skew: timedelta) -> None:
    async with world(store=MemoryStore(lambda: datetime.now(UTC) + skew)) as made:
        for _ in range(2):
            found = await _round_trip(made, {"value": 1, "expires_ms": 60_000})
            expires, appended = (datetime.fromisoformat(found[name]) for name in ("expires_at", "appended_at"))
            assert abs(expires - appended - timedelta(minutes=1)) < timedelta(seconds=30)


async def test_an_expiry_may_be_a_time() -> None:
    async with world() as made:
        found = await _round_trip(made, {"value": 1, "expires_at": "2030-01-01T01:00:00+01:00"})
        both = await made.publish("orders", {"value": 1, "expires_ms": 1, "expires_at": "2030-01-01T00:00:00Z"})
    assert found["expires_at"] == "2030-01-01T00:00:00Z"
    assert both.status == 422 and "not both" in both.json["detail"]


async def test_an_idempotency_key_is_answered_with_its_first_place() -> None:
    async with world() as made:
        first = await made.publish("orders", {"value": 1, "idempotency_key": "k"})
        again = await made.publish("orders", {"value": 1, "idempotency_key": "k"})
        other = await made.publish("orders", {"value": 2, "idempotency_key": "k"})
    assert again.json["results"][0] == {**first.json["results"][0], "duplicate": True}
    assert other.status == 207
    assert other.json["results"][0]["error"]["code"] == "idempotency_conflict"


async def test_a_producers_retry_is_recognised() -> None:
    async with world() as made:
        numbered = {"messages": [{"value": 1, "partition": 1}], "producer": "ab" * 16, "sequence": 0}
        first = await made.call("POST", "/v1/topics/orders/messages", json=numbered)
        again = await made.call("POST", "/v1/topics/orders/messages", json=numbered)
        gap = await made.call("POST", "/v1/topics/orders/messages", json={**numbered, "sequence": 5})
    assert first.status == again.status == 200
    assert again.json["results"][0] == {**first.json["results"][0], "duplicate": True}
    assert gap.json["results"][0]["error"]["code"] == "sequence_refused"


async def test_a_status_for_each_message() -> None:
    async with world() as made:
        reply = await made.publish(
            "orders", {"value": 1}, {"value": 2, "partition": 99}, {"value": "x" * (1 << 20), "key": "k"}, {"value": 4}
        )
        large = await made.publish("orders", {"value": "x" * ((1 << 20) + 1)}, {"value": 2})
    assert reply.status == 207
    assert [result.get("error", {}).get("code") for result in reply.json["results"]] == [
        None,
        "partition_not_found",
        None,
        None,
    ]
    assert [result.get("error", {}).get("code") for result in large.json["results"]] == ["too_large", None]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"messages":[]}', "length >= 1"),
        (b'{"messages":[{}]}', "needs `value`"),
        (b'{"messages":[{"value":1,"value_base64":""}]}', "not both"),
        (b'{"messages":[{"value":1,"key":"a","key_base64":""}]}', "not both"),
        (b'{"messages":[{"value_base64":"a"}]}', "not base64"),
        (b'{"messages":[{"value_base64":"\xc3\xa4"}]}', "not base64"),
        (b'{"messages":[{"value":1,"nonsense":1}]}', "nonsense"),
        (b'{"messages":[{"value":1}],"producer":"' + b"a" * 32 + b'"}', "Give both"),
        (b'{"messages":[{"value":1}],"sequence":1}', "Give both"),
        (b'{"messages":[{"value":"\xff"}]}', "UTF-8"),
        (b'{"messages":[{"value":{"a":"\xff"}}]}', "UTF-8"),
        (b'{"messages":[{"value":1,"key":"\xff"}]}', "UTF-8"),
        (b'{"messages":[{"value":1,"key":"\\ud800"}]}', "truncated"),
        (b'{"messages":[{"value":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}", "nested too deeply"),
        (b'{"messages":[{"value":1,"created_at":"0001-01-01T00:00:00+10:00"}]}', "years 1 to 9999"),
        (b'{"messages":[{"value":1,"created_at":"2026-01-01T00:00:00"}]}', "timezone"),
        (b'{"messages":[{"value":1,"expires_ms":4611686018427387904}]}', "year 9999"),
        (b'{"messages":[{"value":1},{"value_base64":"a"}]}', "(message 1)"),
    ],
)
async def test_malformed_json_is_told_why(body: bytes, reason: str) -> None:
    async with world() as made:
        reply = await made.call(
            "POST", "/v1/topics/orders/messages", body=body, headers={"content-type": "application/json"}
        )
    assert reply.status == 422
    assert reply.json["code"] == "invalid_request"
    assert reason in reply.json["detail"]
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("kind", ["", "text/plain", "application/jsonx", "application/x-www-form-urlencoded"])
async def test_other_media_types_are_refused(kind: str) -> None:
    async with world() as made:
        reply = await made.call("POST", "/v1/topics/orders/messages", body=b"{}", headers={"content-type": kind})
    assert reply.status == 415
    assert "application/json" in reply.json["detail"]


async def test_a_media_type_may_have_parameters() -> None:
    async with world() as made:
        reply = await made.publish("orders", {"value": 1}, headers={"content-type": "Application/JSON; charset=utf-8"})
    assert reply.status == 200


async def test_a_content_encoding_is_refused() -> None:
    async with world() as made:
        reply = await made.publish("orders", {"value": 1}, headers={"content-encoding": "gzip"})
        plain = await made.publish("orders", {"value": 1}, headers={"content-encoding": "identity"})
    assert (reply.status, plain.status) == (415, 200)


async def test_a_missing_topic_is_a_404() -> None:
    async with world() as made:
        reply = await made.publish("missing", {"value": 1})
        invalid = await made.publish("Not A Name", {"value": 1})
    assert (reply.status, reply.json["code"]) == (404, "topic_not_found")
    assert (invalid.status, invalid.json["code"]) == (422, "invalid_name")


class _FailingStore(MemoryStore):
    error: Exception = Unavailable()

    async def append(self, appends: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [Unavailable("No connection."), OutcomeUnknown("Lost.")])
async def test_what_befalls_all_messages_is_a_503(error: Unavailable | OutcomeUnknown) -> None:
    store = _FailingStore()
    store.error = error
    async with world(store=store) as made:
        reply = await made.publish("orders", {"value": 1}, {"value": 2})
    assert (reply.status, reply.json["code"], reply.json["retryable"]) == (503, error.code, True)
    assert reply.headers["retry-after"] == "1"


async def test_a_large_declared_body_is_refused_unread() -> None:
    async with world() as made:
        reply = await made.call(
            "POST",
            "/v1/topics/orders/messages",
            body=b"unread",
            headers={"content-type": "application/json", "content-length": str(MAX_BODY_BYTES + 1)},
        )
        assert made.unread == [b"unread"]
    assert (reply.status, reply.json["code"]) == (413, "too_large")
    assert reply.headers["connection"] == "close"


async def test_a_body_without_length_is_cut_off_at_the_limit() -> None:
    async with world() as made:
        pieces = [bytes(1 << 20)] * 20
        reply = await made.call(
            "POST", "/v1/topics/orders/messages", body=pieces, headers={"content-type": "application/json"}
        )
        assert len(made.unread) == 20 - 9
        assert made.engine.budget.used == 0
    assert reply.status == 413


async def test_a_body_in_pieces_is_put_together() -> None:
    async with world() as made:
        pieces = [b'{"messages":', b"[", b'{"value":1}', b"]}"]
        reply = await made.call(
            "POST", "/v1/topics/orders/messages", body=pieces, headers={"content-type": "application/json"}
        )
        assert made.engine.budget.used == 0
    assert reply.status == 200


async def test_a_body_beyond_the_budget_is_told_to_come_again() -> None:
    async with world(memory_bytes=1000) as made:
        reply = await made.publish("orders", {"value": "x" * 2000})
        small = await made.publish("orders", {"value": "x"})
        assert made.engine.budget.used == 0
    assert (reply.status, reply.json["code"]) == (429, "overloaded")
    assert reply.headers["retry-after"] == "1"
    assert small.status == 200


async def test_the_budget_holds_the_body_until_the_answer() -> None:
    held = []

    class Store(MemoryStore):
        async def append(self, appends: Any) -> Any:
            held.append(made.engine.budget.used)
            return await super().append(appends)

    async with world(store=Store()) as made:
        await made.publish("orders", {"value": "x" * 1000})
        assert held[0] > 1000
        assert made.engine.budget.used == 0


async def test_a_caller_that_hangs_up_in_the_body_is_forgotten() -> None:
    async with world() as made:
        gone = asyncio.Event()
        gone.set()
        reply = await made.call(
            "POST",
            "/v1/topics/orders/messages",
            body=[],
            headers={"content-type": "application/json"},
            gone=gone,
        )
        assert made.engine.budget.used == 0
        assert made.app.traffic.in_flight == 0
    assert reply.status == 0


async def test_large_json_is_decoded_beside_the_loop() -> None:
    async with world() as made:
        reply = await made.publish("orders", *({"value": "x" * 100, "partition": 0} for _ in range(2000)))
    assert reply.status == 200
    assert [result["offset"] for result in reply.json["results"]] == list(range(2000))


@pytest.mark.parametrize(
    ("text", "kind"), [(1, "a number"), (None, "null"), (True, "a boolean"), ({}, "an object"), ([], "an array")]
)
async def test_a_header_that_is_not_text_is_refused_by_name(text: object, kind: str) -> None:
    async with world() as made:
        messages = [{"value": 1, "headers": {"a": "b"}}, {"value": 1, "headers": {"c": "d", "tenant": text}}]
        reply = await made.call("POST", "/v1/topics/orders/messages", json={"messages": messages})
    assert (reply.status, reply.json["code"], reply.json["index"]) == (422, "invalid_request", 1)
    assert reply.json["detail"] == f"Message 1: Header 'tenant' must be text, not {kind}. Write it in quotes."


async def test_a_header_in_a_body_with_another_fault_is_refused_by_its_place() -> None:
    async with world() as made:
        body = b'{"messages": [{"value": 1, "headers": {"a": 1}}, oops'
        headers = {"content-type": "application/json"}
        reply = await made.call("POST", "/v1/topics/orders/messages", body=body, headers=headers)
    assert reply.status == 422 and "$.messages[0].headers[...]" in reply.json["detail"]
