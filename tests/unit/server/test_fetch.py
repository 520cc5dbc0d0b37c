"""Fetch in its three forms, by every position, with the long poll."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pyarrow as pa
import pytest

from lakelog.batches import FETCH, decode, encode, from_columns
from lakelog.engine import Frame
from lakelog.errors import InvalidBatch
from lakelog.server import expansion
from lakelog.storage.memory import MemoryStore
from lakelog.storage.store import Payload
from lakelog.wire.frames import ARROW_MEDIA_TYPE, MEDIA_TYPE, read_fetch
from tests.kit.waiting import eventually_async
from tests.unit.server.harness import World, world

ARROW = {"accept": ARROW_MEDIA_TYPE}
FRAMES = {"accept": MEDIA_TYPE}


async def _fill(made: World, count: int = 10, *, batch: int = 4) -> None:
    """Batches of four in partition 0, with values 0, 1, 2, …"""
    for first in range(0, count, batch):
        numbers = range(first, min(first + batch, count))
        reply = await made.publish("orders", *({"value": number, "partition": 0} for number in numbers))
        assert reply.status == 200


def _offsets(reply: object) -> list[int]:
    return [message["offset"] for message in reply.json["messages"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("", list(range(10))),
        ("offset=earliest", list(range(10))),
        ("offset=4&limit=3", [4, 5, 6]),
        ("offset=latest", []),
        ("offset=10", []),
        ("last=3", [7, 8, 9]),
        ("last=0", []),
        ("last=99&limit=1", [0]),
        ("offset=5&max_bytes=1", [5, 6, 7]),
        ("time=2000-01-01T00:00:00Z&limit=2", [0, 1]),
        ("time=2999-01-01T00:00:00%2B01:00", []),
        ("time=2000-01-01T00:00:00+01:00&limit=1", [0]),
    ],
)
async def test_every_position(query: str, offsets: list[int]) -> None:
    async with world() as made:
        await _fill(made)
        reply = await made.fetch("orders", 0, query)
    assert reply.status == 200, reply.body
    assert _offsets(reply) == offsets
    assert [message["value"] for message in reply.json["messages"]] == offsets
    assert (reply.json["log_start"], reply.json["high_watermark"]) == (0, 10)
    assert reply.json["next_offset"] == (offsets[-1] + 1 if offsets else 10)
    assert reply.headers["lakelog-next-offset"] == str(reply.json["next_offset"])


async def test_by_time() -> None:
    times = iter(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number) for number in range(1000))
    async with world(store=MemoryStore(clock=lambda: next(times))) as made:
        await _fill(made, 12)
        everything = await made.fetch("orders", 0)
        second = everything.json["messages"][4]["appended_at"]
        reply = await made.fetch("orders", 0, f"time={quote(second)}")
    assert _offsets(reply) == list(range(4, 12))


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1",
        "offset=x",
        "offset=99999999999999999999999",
        "offset=1&last=1",
        "offset=1&offset=2",
        "time=yesterday",
        "time=2026-01-01T00:00:00",
        "time=0001-01-01T00:00:00%2B10:00",
        "last=-1",
        "limit=0",
        "limit=10001",
        "limit=%C3%A4",
        "max_bytes=0",
        "wait_ms=30001",
        "nonsense=1",
    ],
)
async def test_bad_queries_are_told_why(query: str) -> None:
    async with world() as made:
        reply = await made.fetch("orders", 0, query)
    assert (reply.status, reply.json["code"]) == (422, "invalid_request")


async def test_missing_objects() -> None:
    async with world() as made:
        await _fill(made, 1)
        partition = await made.fetch("orders", 4)
        large = await made.fetch("orders", 10**8)
        topic = await made.fetch("missing", 0)
        beyond = await made.fetch("orders", 0, "offset=2")
        invalid = await made.call("GET", "/v1/topics/orders/partitions/x/messages")
    assert (partition.status, partition.json["code"]) == (404, "partition_not_found")
    assert large.status == 404
    assert (topic.status, topic.json["code"]) == (404, "topic_not_found")
    assert (beyond.status, beyond.json["code"]) == (416, "offset_out_of_range")
    assert invalid.status == 422


async def test_frames_are_whole_batches_with_their_place() -> None:
    async with world() as made:
        await _fill(made)
        reply = await made.fetch("orders", 0, "offset=5&limit=2", headers=FRAMES)
        frames = read_fetch(0, reply.body)
        topic = await made.engine.topics.find(made.scope, "orders")
    assert reply.headers["content-type"] == MEDIA_TYPE
    assert [(frame.base, frame.count) for frame in frames] == [(4, 4)]
    with pytest.raises(InvalidBatch, match="partition 0 instead of 1"):
        read_fetch(1, reply.body)
    assert decode(frames[0].payload).column("value").to_pylist() == [b"4", b"5", b"6", b"7"]
    places = {
        name: reply.headers[f"lakelog-{name}"] for name in ("start", "next-offset", "log-start", "high-watermark")
    }
    assert places == {"start": "5", "next-offset": "7", "log-start": "0", "high-watermark": "10"}
    assert reply.headers["lakelog-incarnation"] == str(topic.incarnation)


async def test_arrow_is_cut_exactly() -> None:
    async with world() as made:
        await _fill(made)
        reply = await made.fetch("orders", 0, "offset=3&limit=100", headers=ARROW)
        empty = await made.fetch("orders", 0, "offset=10", headers=ARROW)
    table = pa.ipc.open_stream(reply.body).read_all()
    assert table.schema.equals(FETCH)
    assert table.column("offset").to_pylist() == list(range(3, 10))
    assert table.column("value").to_pylist() == [b"%d" % number for number in range(3, 10)]
    assert set(table.column("partition").to_pylist()) == {0}
    assert reply.headers["lakelog-next-offset"] == "10"
    assert pa.ipc.open_stream(empty.body).read_all().num_rows == 0
    assert empty.headers["lakelog-next-offset"] == "10"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("text/html, application/json;q=0.1", "application/json"),
        (f"application/json;q=0.5, {ARROW_MEDIA_TYPE}", ARROW_MEDIA_TYPE),
        (f"application/json;q=0, {MEDIA_TYPE};q=0.1", MEDIA_TYPE),
        ("", "application/json"),
    ],
)
async def test_the_accepted_form_is_chosen(accept: str, chosen: str) -> None:
    async with world() as made:
        reply = await made.fetch("orders", 0, headers={"accept": accept})
    assert (reply.status, reply.headers["content-type"]) == (200, chosen)


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "application/json;q=nan", "image/*;q=x"])
async def test_an_accept_that_nothing_meets_is_a_406(accept: str) -> None:
    async with world() as made:
        reply = await made.fetch("orders", 0, headers={"accept": accept})
    assert reply.status == 406
    assert ARROW_MEDIA_TYPE in reply.json["detail"]


@pytest.mark.parametrize("headers", [{}, ARROW])
async def test_answers_are_bounded_by_what_they_expand_to(
    headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expansion, "MAX_ANSWER_BYTES", 10_000)
    async with world() as made:
        # Compressed to a few hundred bytes, so that no limit of stored bytes helps.
        payload = encode(from_columns({"value": [b"x" * 400] * 100}))
        frame = Frame(partition=0, payload=Payload(data=payload, count=100))
        await made.engine.publisher.frames(made.scope, "orders", [frame, frame])
        at, seen, answers = 0, 0, 0
        while at < 200:
            reply = await made.fetch("orders", 0, f"offset={at}", headers=headers)
            following = int(reply.headers["lakelog-next-offset"])
            assert len(reply.body) < 40_000
            assert following > at
            at, seen, answers = following, seen + following - at, answers + 1
    assert (at, seen) == (200, 200)
    assert answers > 5


async def test_an_answer_beyond_the_budget_is_told_to_come_again() -> None:
    async with world(memory_bytes=3000) as made:
        for _ in range(4):
            await made.publish("orders", {"value": "x" * 1000, "partition": 0})
        reply = await made.fetch("orders", 0)
        less = await made.fetch("orders", 0, "limit=1")
        assert made.engine.budget.used == 0
    assert (reply.status, less.status) == (429, 200)
    assert reply.headers["retry-after"] == "1"


async def test_a_long_poll_ends_with_the_first_message() -> None:
    async with world() as made:
        poll = asyncio.create_task(made.fetch("orders", 0, "offset=latest&wait_ms=30000"))
        await eventually_async(lambda: made.engine.waiters._waiting)
        await made.publish("orders", {"value": "new", "partition": 0})
        reply = await asyncio.wait_for(poll, 5)
        assert made.app.traffic.in_flight == 0
    assert [message["value"] for message in reply.json["messages"]] == ["new"]


async def test_a_long_poll_ends_with_its_time() -> None:
    async with world() as made:
        reply = await made.fetch("orders", 0, "wait_ms=30")
    assert (reply.status, reply.json["messages"], reply.json["next_offset"]) == (200, [], 0)


async def test_a_long_poll_ends_when_the_caller_hangs_up() -> None:
    async with world() as made:
        gone = asyncio.Event()
        poll = asyncio.create_task(made.fetch("orders", 0, "wait_ms=30000", gone=gone))
        await eventually_async(lambda: made.engine.waiters._waiting)
        gone.set()
        reply = await asyncio.wait_for(poll, 5)
        assert not made.engine.waiters._waiting
        assert made.app.traffic.in_flight == 0
    assert reply.status == 0


async def test_a_long_poll_ends_when_the_server_drains() -> None:
    async with world() as made:
        poll = asyncio.create_task(made.fetch("orders", 0, "wait_ms=30000"))
        await eventually_async(lambda: made.engine.waiters._waiting)
        made.drain.begin()
        reply = await asyncio.wait_for(poll, 5)
        at_once = await asyncio.wait_for(made.fetch("orders", 0, "wait_ms=30000"), 5)
    assert (reply.status, reply.json["messages"]) == (200, [])
    assert reply.headers["connection"] == at_once.headers["connection"] == "close"


async def test_large_answers_are_sent_in_pieces() -> None:
    async with world() as made:
        await made.publish("orders", *({"value": "x" * 1000, "partition": 0} for _ in range(600)))
        reply = await made.fetch("orders", 0)
    assert len(reply.body) > 600_000
    assert _offsets(reply) == list(range(600))
