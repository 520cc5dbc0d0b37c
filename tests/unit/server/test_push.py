"""The pushed stream: as many messages as may be unanswered, heartbeats, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from lakelog.engine.leasing.consuming import Leased
from lakelog.errors import Unavailable
from lakelog.model.lease import LeaseAnswer, Verb
from lakelog.model.progress import LeaseInfo, PartitionProgress
from lakelog.model.times import to_time
from lakelog.server import pushing
from lakelog.server.streams import Hands
from tests.kit.waiting import eventually_async
from tests.unit.server.harness import World, working

WHO = {"topic": "jobs", "group": "billing", "owner": "w1"}
QUERY = "topic=jobs&group=billing&owner=w1&start_from=earliest"


class Stream:
    """A stream that is being read."""

    def __init__(self, made: World, query: str, accept: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.task = asyncio.create_task(
            made.call("GET", "/v1/consume", query=query, headers={"accept": accept}, gone=self.gone, sent=self.sent)
        )

    @property
    def body(self) -> bytes:
        return b"".join(each["body"] for each in self.sent[1:])

    @property
    def messages(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.body.splitlines() if line]

    @property
    def offsets(self) -> list[int]:
        return [message["offset"] for message in self.messages]


@asynccontextmanager
async def _stream(made: World, more: str = "", accept: str = "application/x-ndjson") -> AsyncIterator[Stream]:
    stream = Stream(made, QUERY + more, accept)
    try:
        yield stream
    finally:
        stream.gone.set()
        await asyncio.wait_for(stream.task, 5)


async def _publish(made: World, *values: object) -> None:
    reply = await made.publish("jobs", *({"value": value, "content_type": "application/json"} for value in values))
    assert reply.status == 200


async def _ack(made: World, message: Any) -> None:
    body = {**WHO, "partition": 0, "token": message["token"], "offset": message["offset"]}
    assert (await made.call("POST", "/v1/ack", json=body)).status == 204


async def test_the_next_comes_with_the_answer() -> None:
    async with working() as made:
        await _publish(made, 1, 2, 3)
        async with _stream(made) as stream:
            for expected in ([0], [0, 1], [0, 1, 2]):
                await eventually_async(lambda: stream.offsets == expected)  # noqa: B023
                assert (await made.call("GET", "/v1/groups/billing/lag")).json["partitions"][0]["leased"] == 1
                await _ack(made, stream.messages[-1])
            await _publish(made, 4)
            await eventually_async(lambda: stream.offsets == [0, 1, 2, 3])
        message = stream.messages[0]
    assert (message["topic"], message["group"], message["partition"], message["value"]) == ("jobs", "billing", 0, 1)
    assert (message["delivery"], message["failures"], message["id"].split("-")[2]) == (1, 0, "0")


async def test_several_may_be_out() -> None:
    async with working() as made:
        await _publish(made, *range(5))
        async with _stream(made, "&max_in_flight=3") as stream:
            await eventually_async(lambda: stream.offsets == [0, 1, 2])
            await _ack(made, stream.messages[1])
            await eventually_async(lambda: stream.offsets == [0, 1, 2, 3])


async def test_answers_that_went_elsewhere_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "LOOK_SECONDS", 0.02)
    async with working() as made:
        await _publish(made, 1, 2)
        async with _stream(made) as stream:
            await eventually_async(lambda: stream.offsets == [0])
            # Past the handler, as if by another process.
            said = LeaseAnswer(verb=Verb.ACK, partition=0, offsets=(0,))
            await made.engine.leases.answer(made.scope, "jobs", "billing", "w1", [said])
            await eventually_async(lambda: stream.offsets == [0, 1])


async def test_events() -> None:
    async with working() as made:
        await _publish(made, {"n": 1})
        async with _stream(made, accept="text/event-stream") as stream:
            await eventually_async(lambda: b"data: " in stream.body)
        head = dict(stream.sent[0]["headers"])
    assert head[b"content-type"] == b"text/event-stream"
    assert b"content-length" not in head
    event = stream.body.decode().split("\n\n")[0].splitlines()
    assert event[0] == "event: message"
    assert event[1].startswith("id: ")
    assert msgspec.json.decode(event[2].removeprefix("data: "))["value"] == {"n": 1}


async def test_a_value_with_line_ends_stays_one_line() -> None:
    async with working() as made:
        body = b'{"messages": [{"value": {"a":\n\n [1,\r\n 2]}}]}'
        headers = {"content-type": "application/json"}
        assert (await made.call("POST", "/v1/topics/jobs/messages", body=body, headers=headers)).status == 200
        async with _stream(made) as stream:
            await eventually_async(lambda: b"offset" in stream.body)
    assert stream.messages[0]["value"] == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("accept", "beat"), [("application/x-ndjson", b"\n"), ("text/event-stream", b": heartbeat\n\n")]
)
async def test_heartbeats(accept: str, beat: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "HEARTBEAT_SECONDS", 0.02)
    async with working() as made, _stream(made, accept=accept) as stream:
        await eventually_async(lambda: stream.body.startswith(beat * 3))


async def test_heartbeats_while_nothing_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "HEARTBEAT_SECONDS", 0.02)
    async with working() as made:
        await _publish(made, 1)
        async with _stream(made) as stream:
            await eventually_async(lambda: stream.body.endswith(b"}\n\n\n\n"))


async def test_the_stream_ends_when_the_server_drains() -> None:
    async with working() as made:
        await _publish(made, 1)
        async with _stream(made) as stream:
            await eventually_async(lambda: stream.offsets == [0])
            made.drain.begin()
            await asyncio.wait_for(asyncio.shield(stream.task), 2)
    assert stream.sent[-1] == {"type": "http.response.body", "body": b""}


async def test_the_stream_ends_when_the_caller_hangs_up() -> None:
    async with working() as made:
        async with _stream(made) as stream:
            await eventually_async(lambda: stream.body)
        assert made.app.traffic.in_flight == 0
        assert made.engine.budget.used == 0
        await _publish(made, 1)
        held = await made.call("GET", "/v1/groups/billing/leases")
    assert held.json["leases"] == []


async def test_an_error_ends_the_stream_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with working() as made:
        await _publish(made, 1, 2)
        async with _stream(made) as stream:
            await eventually_async(lambda: stream.offsets == [0])

            async def unavailable(*args: Any) -> Any:
                raise Unavailable

            monkeypatch.setattr(made.engine.leases, "consume", unavailable)
            await _ack(made, stream.messages[0])
            await asyncio.wait_for(asyncio.shield(stream.task), 2)
    assert stream.messages[-1]["error"]["code"] == "unavailable"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("topic=missing&group=billing&owner=w1", 404),
        ("topic=jobs&group=billing", 422),
        ("topic=jobs&group=billing&owner=w1&max_in_flight=0", 422),
        ("topic=jobs&group=billing&owner=w1&lease_ms=x", 422),
        ("topic=jobs&group=billing&owner=w1&retries=3", 422),
        ("topic=jobs&group=billing&owner=w1&wait_ms=3", 422),
        ("topic=jobs&group=billing&owner=w1&start_from=soon", 422),
    ],
)
async def test_refusals_have_their_own_status(query: str, status: int) -> None:
    async with working() as made:
        reply = await made.call("GET", "/v1/consume", query=query)
    assert reply.status == status


async def test_another_accept_is_refused() -> None:
    async with working() as made:
        reply = await made.call("GET", "/v1/consume", query=QUERY, headers={"accept": "text/html"})
    assert reply.status == 406


def _leased(token: int, *offsets: int) -> Leased:
    return Leased(
        token=token,
        partition=0,
        expires_ms=1,
        suspect=False,
        offsets=offsets,
        deliveries={},
        failures={},
        pieces=(),
    )


def test_hands_count_what_is_not_answered() -> None:
    hands = Hands()
    hands.given(_leased(1, 0, 1, 2))
    hands.given(_leased(2, 5, 9))
    assert hands.count == 5
    hands.answered(LeaseAnswer(verb=Verb.EXTEND, partition=0, token=1))
    hands.answered(LeaseAnswer(verb=Verb.ACK, partition=0, token=7, offsets=((0, 98),)))
    hands.answered(LeaseAnswer(verb=Verb.ACK, partition=1, offsets=((0, 98),)))
    assert (hands.count, hands.freed.is_set()) == (5, False)
    hands.answered(LeaseAnswer(verb=Verb.ACK_THROUGH, partition=0, offsets=(1,)))
    assert (hands.count, hands.freed.is_set()) == (3, True)
    hands.answered(LeaseAnswer(verb=Verb.NACK, partition=0, token=2, offsets=((9, (1 << 62) - 1),)))
    assert hands.count == 2
    lease = LeaseInfo(
        topic="jobs", partition=0, token=2, owner="w1", offsets=((5, 5),), granted_at=to_time(0), expires_at=to_time(0)
    )
    nothing: Any = dict.fromkeys(PartitionProgress.__struct_fields__, 0)
    hands.settle([PartitionProgress(**{**nothing, "topic": "jobs", "leases": [lease]})])
    assert hands.count == 1
