"""A consume that carries answers: the outcomes come with the leases, in all three forms, once and not late."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from lakelog.errors import Unavailable
from lakelog.server.lease_forms import ANSWERED, ERROR
from lakelog.wire.frames import ARROW_MEDIA_TYPE
from lakelog.wire.leases import MEDIA_TYPE, read_leases
from tests.unit.server.harness import Reply, World, working

ASK = {"topic": "jobs", "group": "billing", "owner": "w1", "start_from": "earliest", "max_messages": 2}


async def _consume(made: World, accept: str = "application/json", query: str = "", **more: Any) -> Reply:
    return await made.call("POST", "/v1/consume", json={**ASK, **more}, headers={"accept": accept}, query=query)


async def _lease(made: World, **more: Any) -> dict[str, Any]:
    (lease,) = (await _consume(made, **more)).json["leases"]
    return {"partition": 0, "token": lease["token"], "offsets": [each["offset"] for each in lease["messages"]]}


async def _fill(made: World, count: int) -> None:
    assert (await made.publish("jobs", *({"value": number} for number in range(count)))).status == 200


async def _acked(made: World) -> int:
    reply = await made.call("GET", "/v1/groups/billing/lag", query="topic=jobs")
    return sum(each["acked"] for each in reply.json["partitions"])


def _answered(reply: Reply, accept: str) -> tuple[list[dict[str, Any]], int]:
    """The outcomes, and how many messages came with them."""
    if accept == MEDIA_TYPE:
        head, _ = read_leases(reply.body)
        return msgspec.to_builtins(head.answered), sum(len(list(lease.offsets())) for lease in head.leases)
    if accept == ARROW_MEDIA_TYPE:
        table = pa.ipc.open_stream(reply.body).read_all()
        return msgspec.json.decode(table.schema.metadata[ANSWERED.encode()]), table.num_rows
    return reply.json["answered"], sum(len(lease["messages"]) for lease in reply.json["leases"])


def _error(reply: Reply, accept: str) -> dict[str, Any]:
    """Why no messages were leased."""
    if accept == MEDIA_TYPE:
        return read_leases(reply.body)[0].error or {}
    if accept == ARROW_MEDIA_TYPE:
        return msgspec.json.decode(pa.ipc.open_stream(reply.body).schema.metadata[ERROR.encode()])  # type: ignore[no-any-return]
    return reply.json["error"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("accept", ["application/json", MEDIA_TYPE, ARROW_MEDIA_TYPE])
@pytest.mark.parametrize("count", [2, 4])
async def test_the_outcomes_come_in_every_form(accept: str, count: int) -> None:
    async with working() as made:
        await _fill(made, count)
        lease = await _lease(made)
        lost = {"verb": "ack", "partition": 0, "token": 1, "offsets": [0]}
        answers = [{"verb": "ack", **lease}, lost]
        reply = await asyncio.wait_for(_consume(made, accept, answers=answers, wait_ms=20_000), 2.0)
        assert reply.status == 200
        (done, refused), messages = _answered(reply, accept)
        assert done == {"ok": True} and refused["error"]["code"] == "lease_lost"
        assert messages == count - 2 and await _acked(made) == 2
        metrics = (await made.call("GET", "/metrics", token=None)).body
    assert b'lakelog_answers_total{outcome="ok",verb="ack"} 1.0' in metrics
    assert b'lakelog_answers_total{outcome="lease_lost",verb="ack"} 1.0' in metrics


@pytest.mark.parametrize("accept", ["application/json", MEDIA_TYPE, ARROW_MEDIA_TYPE])
async def test_S12_the_reason_for_no_lease_comes_with_the_outcomes(
    accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease whose messages cannot be read is released again, which uses up a delivery: the caller must know."""

    async def unreadable(*_: object) -> object:
        raise Unavailable()

    async with working() as made:
        await _fill(made, 4)
        answers = [{"verb": "ack", **await _lease(made)}]
        monkeypatch.setattr(made.engine.leases._context.batch_cache, "pieces", unreadable)
        reply = await _consume(made, accept, answers=answers)
    assert reply.status == 200
    assert _answered(reply, accept) == ([{"ok": True}], 0)
    assert _error(reply, accept)["code"] == "unavailable"


async def test_a_call_without_answers_has_no_outcomes() -> None:
    async with working() as made:
        await _fill(made, 2)
        assert not {"answered", "error"} & {*(await _consume(made)).json}
        assert read_leases((await _consume(made, MEDIA_TYPE)).body)[0].answered is None
        table = pa.ipc.open_stream((await _consume(made, ARROW_MEDIA_TYPE)).body).read_all()
        assert table.schema.metadata is None


async def test_a_nack_is_reported_as_by_the_bulk_call() -> None:
    async with working() as made:
        await _fill(made, 2)
        lease = await _lease(made, retries={"max": 1})
        nack = {"verb": "nack", "reason": "no", "delay_ms": 5000, **lease}
        (outcome,), _ = _answered(await _consume(made, answers=[nack]), "application/json")
    assert outcome == {"ok": True, "retry_in_ms": 5000, "max_attempts": outcome["max_attempts"]}


@pytest.mark.parametrize("query", ["", "repeat=true"])
async def test_S8_S10_a_repeat_gets_the_same_again(query: str) -> None:
    async with working() as made:
        await _fill(made, 6)
        answers = [{"verb": "ack", **await _lease(made)}]
        lost = await _consume(made, answers=answers, request_id="r1")
        other = await _consume(made, owner="w2")
        again = await _consume(made, answers=answers, request_id="r1", query=query)
        assert len(other.json["leases"]) == 1
        assert again.json["answered"] == lost.json["answered"] == [{"ok": True}]
        assert [each["token"] for each in again.json["leases"]] == [each["token"] for each in lost.json["leases"]]
        assert await _acked(made) == 2


async def test_an_error_of_all_answers_is_the_call_s() -> None:
    """503 with Retry-After is what every client understands; with leases, the outcomes say it."""

    async def away(*_: object) -> object:
        raise Unavailable()

    async with working() as made:
        await _fill(made, 2)
        answers = [{"verb": "ack", **await _lease(made)}]
        store = made.engine.cells[0]
        store.groups.journals_commit = away  # type: ignore[method-assign, assignment]
        reply = await _consume(made, answers=answers)
    assert reply.status == 503


async def test_a_server_that_drains_still_takes_answers() -> None:
    async with working() as made:
        await _fill(made, 2)
        answers = [{"verb": "ack", **await _lease(made)}]
        made.drain.begin()
        reply = await _consume(made, answers=answers, wait_ms=20_000)
        assert reply.json["answered"] == [{"ok": True}]


@pytest.mark.parametrize(
    "answers",
    [[], [{"verb": "ack", "partition": 0}], [{"verb": "no", "partition": 0, "offsets": [0]}], {"verb": "ack"}],
)
async def test_malformed_answers_refuse_the_call(answers: object) -> None:
    async with working() as made:
        assert (await _consume(made, answers=answers)).status == 422
