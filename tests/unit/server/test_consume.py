"""Consume in its three forms, with the long poll; and what owners answer, one by one and many at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from lakelog.batches import columns, decode
from lakelog.errors import Unavailable
from lakelog.wire.frames import ARROW_MEDIA_TYPE
from lakelog.wire.leases import MEDIA_TYPE, read_leases
from tests.kit.waiting import eventually_async
from tests.unit.server.harness import Reply, World, waits, working

WHO = {"topic": "jobs", "group": "billing", "owner": "w1"}
ASK = {**WHO, "start_from": "earliest"}


async def _consume(made: World, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    return await made.call("POST", "/v1/consume", json={**ASK, **more}, headers=headers)


async def _say(made: World, verb: str, **more: Any) -> Reply:
    return await made.call("POST", f"/v1/{verb}", json={**WHO, "partition": 0, **more})


async def _fill(made: World, count: int = 4, partition: int = 0) -> None:
    reply = await made.publish("jobs", *({"value": number, "partition": partition} for number in range(count)))
    assert reply.status == 200


async def _held(made: World) -> list[Any]:
    reply = await made.call("GET", "/v1/groups/billing/leases", query="topic=jobs")
    return [lease["offsets"] for lease in reply.json["leases"]]


async def test_the_loop_of_an_owner() -> None:
    async with working() as made:
        await _fill(made, 2)
        (lease,) = (await _consume(made)).json["leases"]
        (message,) = lease["messages"]
        assert (message["offset"], message["value"], message["delivery"], message["failures"]) == (0, 0, 1, 0)
        assert (await _say(made, "ack", token=lease["token"], offset=0)).status == 204
        (lease,) = (await _consume(made, max_messages=10)).json["leases"]
        assert [message["offset"] for message in lease["messages"]] == [1]
        assert (await _say(made, "ack", offsets=[[1, 1]])).status == 204
        assert (await _consume(made)).json == {"leases": []}
        lag = await made.call("GET", "/v1/groups/billing/lag", query="topic=jobs")
        assert lag.json["lag"] == 0


async def test_the_stored_payloads_are_passed_on() -> None:
    async with working() as made:
        await _fill(made)
        reply = await _consume(made, {"accept": MEDIA_TYPE}, max_messages=3)
    assert reply.headers["content-type"] == MEDIA_TYPE
    head, (payload,) = read_leases(reply.body)
    assert list(head.leases[0].offsets()) == [0, 1, 2]
    assert columns(decode(payload))["value"] == [b"0", b"1", b"2", b"3"]


async def test_an_arrow_stream() -> None:
    async with working() as made:
        await _fill(made)
        reply = await _consume(made, {"accept": ARROW_MEDIA_TYPE}, max_messages=3)
    table = pa.ipc.open_stream(reply.body).read_all()
    assert table["offset"].to_pylist() == [0, 1, 2]
    assert table["delivery"].to_pylist() == [1, 1, 1]


async def test_a_repeat_gets_the_same_lease() -> None:
    async with working() as made:
        await _fill(made)
        first = await _consume(made, request_id="r1", max_messages=2)
        again = await _consume(made, request_id="r1", max_messages=2)
        other = await _consume(made, request_id="r2", max_messages=2)
    assert first.json["leases"][0]["token"] == again.json["leases"][0]["token"]
    assert [message["offset"] for message in other.json["leases"][0]["messages"]] == [2, 3]


async def test_s9_another_owner_cannot_answer() -> None:
    """S9: an answer counts only with the lease's own owner and token."""
    async with working() as made:
        await _fill(made)
        (lease,) = (await _consume(made)).json["leases"]
        for verb in ("ack", "nack", "discard", "extend"):
            other = await made.call(
                "POST", f"/v1/{verb}", json={**WHO, "owner": "w2", "partition": 0, "offset": 0, "token": lease["token"]}
            )
            assert (other.status, other.json["code"]) == (409, "not_owner"), verb
        stale = await _say(made, "ack", token=lease["token"] + 1, offset=0)
        assert (stale.status, stale.json["code"]) == (409, "lease_lost")
        assert await _held(made) == [[[0, 0]]]


async def test_kinds_of_nack() -> None:
    async with working() as made:
        await _fill(made, 3)
        await _consume(made, max_messages=3)
        assert (await _say(made, "nack", offset=0, kind="uncounted", delay_ms=0)).status == 204
        assert (await _say(made, "nack", offset=1, delay_ms=0, reason="x" * 9000)).status == 204
        assert (await _say(made, "nack", offset=2, kind="fatal", reason="bad \u0000 currency")).status == 204
        leases = (await _consume(made, max_messages=3)).json["leases"]
        found = {m["offset"]: (m["delivery"], m["failures"]) for lease in leases for m in lease["messages"]}
        assert found == {0: (2, 0), 1: (2, 1)}
        dead = await made.call("GET", "/v1/groups/billing/dead-letters")
    (letter,) = dead.json["dead_letters"]
    assert (letter["offset"], letter["value"], letter["error"], letter["owner"]) == (2, 2, "bad  currency", "w1")


async def test_a_nack_that_makes_a_dead_letter_keeps_its_traceback() -> None:
    long = "Traceback (most recent call last):\n" + "  in step\n" * 6000 + "ValueError: no account"
    async with working() as made:
        await _fill(made, 4)
        await _consume(made, max_messages=4)
        assert (await _say(made, "nack", offset=0, kind="fatal", traceback="in pay\n\u0000ValueError")).status == 204
        assert (await _say(made, "nack", offset=1, kind="fatal", traceback=long)).status == 204
        assert (await _say(made, "nack", offset=2, kind="fatal")).status == 204
        refused = await _say(made, "nack", offset=3, kind="fatal", traceback="x" * 65_537)
        answers = [{"verb": "fail", "partition": 0, "offsets": [3], "traceback": "in pay"}]
        path = "/v1/topics/jobs/groups/billing/answers"
        assert (await made.call("POST", path, json={"owner": "w1", "answers": answers})).json["results"][0]["ok"]
        dead = await made.call("GET", "/v1/groups/billing/dead-letters")
    first, second, third, fourth = dead.json["dead_letters"]
    assert (first["traceback"], fourth["traceback"]) == ("in pay\nValueError", "in pay")
    assert len(second["traceback"]) <= 8192 and second["traceback"].endswith("in step\nValueError: no account")
    assert "traceback" not in third
    assert (refused.status, "65536" in refused.json["detail"]) == (422, True)


async def test_extend_answers_the_new_end() -> None:
    async with working() as made:
        await _fill(made)
        (lease,) = (await _consume(made, lease_ms=1000)).json["leases"]
        by_token = await _say(made, "extend", token=lease["token"], lease_ms=60_000)
        by_offset = await _say(made, "extend", offset=0, lease_ms=90_000)
    assert lease["expires_at"] < by_token.json["expires_at"] < by_offset.json["expires_at"]


async def test_acks_up_to_an_offset() -> None:
    async with working() as made:
        await _fill(made)
        await _consume(made, max_messages=4)
        assert (await _say(made, "ack-cumulative", offset=2)).status == 204
        assert await _held(made) == [[[3, 3]]]


async def test_a_partition_may_be_left_out_where_there_is_one() -> None:
    async with working() as made:
        await _fill(made)
        await _consume(made)
        assert (await made.call("POST", "/v1/ack", json={**WHO, "offset": 0})).status == 204
        refused = await made.call("POST", "/v1/ack", json={**WHO, "topic": "orders", "offset": 0})
    assert (refused.status, "has 4" in refused.json["detail"]) == (422, True)


async def test_many_answers_at_once() -> None:
    async with working() as made:
        await _fill(made, 4)
        await _consume(made, max_messages=4)
        answers = [
            {"verb": "ack", "partition": 0, "offsets": [0]},
            {"verb": "ack", "partition": 0, "token": 999, "offsets": [1]},
            {"verb": "fail", "partition": 0, "offsets": [[2, 2]], "reason": "broken"},
            {"verb": "extend", "partition": 0, "offsets": [3], "lease_ms": 60_000},
            {"verb": "ack", "partition": 99, "offsets": [3]},
            {"verb": "nack", "partition": 0, "offsets": [3], "delay_ms": 5000},
        ]
        path = "/v1/topics/jobs/groups/billing/answers"
        reply = await made.call("POST", path, json={"owner": "w1", "answers": answers})
        metrics = await made.call("GET", "/metrics")
    assert reply.status == 200
    ok, lost, dead, extended, nowhere, nacked = reply.json["results"]
    assert ok == {"ok": True}
    assert lost["error"]["code"] == "lease_lost"
    assert dead == {"ok": True, "dead": [2], "max_attempts": 4}
    assert extended["ok"] and extended["expires_at"]
    assert nowhere["error"]["code"] == "partition_not_found"
    assert nacked == {"ok": True, "retry_in_ms": 5000, "max_attempts": 4}
    assert b'lakelog_answers_total{outcome="ok",verb="ack"} 1.0' in metrics.body
    assert b'lakelog_answers_total{outcome="lease_lost",verb="ack"} 1.0' in metrics.body
    assert b"lakelog_leased_messages_total 4.0" in metrics.body
    assert b"lakelog_consume_seconds_count 1.0" in metrics.body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/consume", {"topic": "orders", "group": "billing"}),
        ("/v1/consume", {**ASK, "owner": ""}),
        ("/v1/consume", {**ASK, "owner": "a\0b"}),
        ("/v1/consume", {**ASK, "owner": "é" * 101}),
        ("/v1/consume", {**ASK, "lease_ms": 1}),
        ("/v1/consume", {**ASK, "wait_ms": 30_001}),
        ("/v1/consume", {**ASK, "max_messages": 0}),
        ("/v1/consume", {**ASK, "start_from": "yesterday"}),
        ("/v1/consume", {**ASK, "start_from": -1}),
        ("/v1/consume", {**ASK, "order": "random"}),
        ("/v1/consume", {**ASK, "filter": "value ="}),
        ("/v1/consume", {**ASK, "nonsense": 1}),
        ("/v1/ack", {**WHO, "partition": 0}),
        ("/v1/ack", {**WHO, "partition": 0, "offset": 1, "offsets": [1]}),
        ("/v1/ack", {**WHO, "partition": 0, "offsets": []}),
        ("/v1/ack", {**WHO, "partition": 0, "offsets": [[5, 2]]}),
        ("/v1/ack", {**WHO, "partition": 0, "offsets": [[1, 2, 3]]}),
        ("/v1/ack", {**WHO, "partition": -1, "offset": 1}),
        ("/v1/nack", {**WHO, "partition": 0, "offset": 1, "kind": "maybe"}),
        ("/v1/extend", {**WHO, "partition": 0}),
        ("/v1/topics/jobs/groups/billing/answers", {"owner": "w1", "answers": []}),
        ("/v1/topics/jobs/groups/billing/answers", {"owner": "w1", "answers": [{"verb": "ack", "partition": 0}]}),
    ],
)
async def test_bad_bodies_are_told_why(path: str, body: dict[str, Any]) -> None:
    async with working() as made:
        await _consume(made)
        reply = await made.call("POST", path, json=body)
    assert reply.status == 422, reply.body
    assert reply.json["detail"]


async def test_huge_ranges_cost_nothing() -> None:
    async with working() as made:
        await _fill(made, 2)
        await _consume(made, max_messages=2)
        reply = await asyncio.wait_for(_say(made, "ack", offsets=[[0, 2**62]]), 2)
    assert reply.status in (204, 409)


async def test_settings_that_differ_are_refused() -> None:
    async with working() as made:
        await _consume(made, retries={"max": 5})
        same = await _consume(made, retries={"max": 5, "strategy": "exponential"})
        other = await _consume(made, retries={"max": 2, "strategy": "fixed", "base_ms": 10})
    assert same.status == 200
    assert (other.status, other.json["code"]) == (409, "group_settings_differ")


async def test_a_long_poll_ends_with_the_first_message() -> None:
    async with working() as made:
        poll = asyncio.create_task(_consume(made, wait_ms=30_000))
        await eventually_async(lambda: waits(made))
        await _fill(made, 1)
        reply = await asyncio.wait_for(poll, 5)
        metrics = await made.call("GET", "/metrics")
    assert [message["offset"] for message in reply.json["leases"][0]["messages"]] == [0]
    assert b"lakelog_consume_seconds_count 0.0" in metrics.body


@pytest.mark.parametrize("accept", ["application/json", MEDIA_TYPE, ARROW_MEDIA_TYPE])
async def test_a_long_poll_ends_when_the_server_drains(accept: str) -> None:
    async with working() as made:
        poll = asyncio.create_task(_consume(made, {"accept": accept}, wait_ms=30_000))
        await eventually_async(lambda: waits(made))
        made.drain.begin()
        reply = await asyncio.wait_for(poll, 2)
    assert (reply.status, reply.headers["content-type"]) == (200, accept)


async def test_who_hangs_up_is_not_leased_to() -> None:
    async with working() as made:
        gone = asyncio.Event()
        ask = {**ASK, "wait_ms": 30_000}
        poll = asyncio.create_task(made.call("POST", "/v1/consume", json=ask, gone=gone))
        await eventually_async(lambda: waits(made))
        gone.set()
        reply = await asyncio.wait_for(poll, 2)
        await _fill(made, 1)
        assert await _held(made) == []
        assert (await _consume(made, owner="w2")).json["leases"][0]["messages"][0]["delivery"] == 1
    assert reply.status == 0


async def test_a_lease_beyond_the_budget_is_given_back() -> None:
    async with working(memory_bytes=3000) as made:
        for _ in range(4):
            await made.publish("jobs", {"value": "x" * 1000, "partition": 0})
        with made.engine.budget.held(2500):
            refused = await _consume(made, max_messages=4)
            assert refused.status == 429
            assert await _held(made) == []
        assert made.engine.budget.used == 0
        (lease,) = (await _consume(made, max_messages=1)).json["leases"]
    assert lease["messages"][0]["failures"] == 0


async def test_what_fails_for_all_answers_fails_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with working() as made:
        await _fill(made)
        await _consume(made, max_messages=2)

        async def unavailable(*args: Any, **kwargs: Any) -> list[Any]:
            return [Unavailable(), Unavailable()]

        monkeypatch.setattr(made.engine.leases, "answer", unavailable)
        answers = [{"verb": "ack", "partition": 0, "offsets": [offset]} for offset in (0, 1)]
        path = "/v1/topics/jobs/groups/billing/answers"
        reply = await made.call("POST", path, json={"owner": "w1", "answers": answers})
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
