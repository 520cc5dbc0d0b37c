"""Responses whose stored batches expand: bounded by the expanded size on every path, and counted in the budget."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pytest

from lakelog.batches.encoding import PREFIX
from lakelog.batches.schema import BITS
from lakelog.server import expansion
from lakelog.server.expansion import MAX_ANSWER_BYTES
from lakelog.wire.frames import ARROW_MEDIA_TYPE, MEDIA_TYPE, NO_PRODUCER, PublishFrame, write_publish
from tests.kit.waiting import eventually_async
from tests.unit.server.harness import World, working, world

ROWS, PARTITIONS = 16, 4
WHO = {"topic": "orders", "group": "g", "owner": "o"}


def _payload(values: list[bytes]) -> bytes:
    """A batch whose values compress by a factor of almost 100, as a caller may send it."""
    expires = datetime.now(UTC) + timedelta(days=3650)
    schema = pa.schema([pa.field("value", pa.binary()), pa.field("expires_at", pa.timestamp("us", tz="UTC"))])
    arrays = [pa.array(values, pa.binary()), pa.array([expires] * len(values), pa.timestamp("us", tz="UTC"))]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    writer = pa.ipc.RecordBatchStreamWriter(sink, schema, options=options)
    writer.write_batch(pa.record_batch(arrays, schema=schema))
    # Without the end of the stream, which a batch does not have.
    stream = sink.getvalue()
    (head,) = struct.unpack_from("<i", stream, 4)
    return PREFIX.pack(1, BITS["value"] | BITS["expires_at"]) + stream.slice(8 + head).to_pybytes()


async def _publish(made: World, values: list[bytes]) -> int:
    payload = _payload(values)
    frames = [
        PublishFrame(partition=n, epoch=0, count=len(values), sequence=0, producer=NO_PRODUCER, payload=payload)
        for n in range(PARTITIONS)
    ]
    body = write_publish(frames)
    reply = await made.call("POST", "/v1/topics/orders/messages", body=body, headers={"content-type": MEDIA_TYPE})
    assert reply.status == 200, reply.body
    return len(body)


def _zeros() -> list[bytes]:
    return [b"\0" * (1 << 20)] * (ROWS - 1) + [os.urandom(180_000)]


def _watch_peak(made: World) -> list[int]:
    """Record the memory in use after each take."""
    used, take = [0], made.engine.budget.take

    def taken(*args: Any) -> None:
        take(*args)
        used.append(made.engine.budget.used)

    made.engine.budget.take = taken  # type: ignore[method-assign]
    return used


@pytest.mark.parametrize("accept", ["application/json", ARROW_MEDIA_TYPE])
async def test_a_consume_gets_what_fits_and_the_rest_later(accept: str) -> None:
    async with world() as made:
        stored = await _publish(made, _zeros())
        used = _watch_peak(made)
        count, calls = 0, 0
        while count < ROWS * PARTITIONS:
            reply = await made.call(
                "POST",
                "/v1/consume",
                json={**WHO, "start_from": "earliest", "max_messages": 1000},
                headers={"accept": accept},
            )
            assert reply.status == 200 and stored < len(reply.body) < 1.5 * MAX_ANSWER_BYTES
            calls += 1
            if accept == ARROW_MEDIA_TYPE:
                rows = pa.ipc.open_stream(reply.body).read_all().num_rows
            else:
                rows = sum(len(lease["messages"]) for lease in reply.json["leases"])
                # A message that did not fit has not failed.
                assert all(each["failures"] == 0 for lease in reply.json["leases"] for each in lease["messages"])
            assert rows > 0
            count += rows
            assert max(used) > len(reply.body)
        assert count == ROWS * PARTITIONS and calls <= 10
        assert made.engine.budget.used == 0


async def test_large_messages_at_the_start_of_a_batch_are_counted_each() -> None:
    async with world() as made:
        values = [b"\0" * (1 << 20)] * 40 + [b"x"] * 5000 + [os.urandom(600_000)]
        await _publish(made, values)
        reply = await made.call("POST", "/v1/consume", json={**WHO, "start_from": "earliest", "max_messages": 1000})
        assert reply.status == 200 and len(reply.body) < 1.5 * MAX_ANSWER_BYTES
        fetched = await made.fetch("orders", 0, "limit=1000")
        assert fetched.status == 200 and len(fetched.body) < 1.5 * MAX_ANSWER_BYTES
        assert len(fetched.json["messages"]) >= 10


async def test_a_stream_sends_what_fits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MAX_ANSWER_BYTES", 4 << 20)
    async with world() as made:
        await _publish(made, _zeros())
        sent: list[dict[str, Any]] = []
        gone = asyncio.Event()
        query = "topic=orders&group=g&owner=o&start_from=earliest&max_in_flight=1000"
        accept = {"accept": "application/x-ndjson"}
        stream = asyncio.create_task(made.call("GET", "/v1/consume", query=query, headers=accept, gone=gone, sent=sent))

        def offsets() -> int:
            lines = b"".join(each.get("body", b"") for each in sent).splitlines()
            return len([line for line in lines if line and "offset" in msgspec.json.decode(line)])

        await eventually_async(lambda: offsets() == ROWS * PARTITIONS, within=30)
        assert max(len(each.get("body", b"")) for each in sent) < 8 << 20
        gone.set()
        await stream


async def test_a_response_that_the_budget_cannot_hold_is_refused_and_its_messages_are_released() -> None:
    async with world(memory_bytes=64 << 20) as made:
        await _publish(made, _zeros())
        with made.engine.budget.held(60 << 20):
            asked = {**WHO, "start_from": "earliest", "max_messages": 1000}
            reply = await made.call("POST", "/v1/consume", json=asked)
            assert (reply.status, reply.json["code"]) == (429, "overloaded")
            fetched = await made.fetch("orders", 0)
            assert (fetched.status, fetched.json["code"]) == (429, "overloaded")
        reply = await made.call("POST", "/v1/consume", json=asked)
        (message, *_) = reply.json["leases"][0]["messages"]
        assert (reply.status, message["failures"]) == (200, 0)


async def _die(made: World, count: int, value: str) -> None:
    """Let a group reject messages for good."""
    who = {**WHO, "topic": "jobs"}
    for _ in range(count):
        assert (await made.publish("jobs", {"value": value})).status == 200
    dead = 0
    while dead < count:
        reply = await made.call("POST", "/v1/consume", json={**who, "max_messages": 1000, "start_from": "earliest"})
        for lease in reply.json["leases"]:
            offsets = [message["offset"] for message in lease["messages"]]
            body = {**who, "partition": 0, "token": lease["token"], "offsets": offsets, "kind": "fatal"}
            assert (await made.call("POST", "/v1/nack", json=body)).status == 204
            dead += len(offsets)


async def test_a_page_of_dead_letters_ends_before_it_is_large() -> None:
    async with working() as made:
        await _die(made, 20, "x" * ((1 << 20) - 8))
        used = _watch_peak(made)
        found, after = 0, ""
        while True:
            reply = await made.call("GET", "/v1/groups/g/dead-letters", query=f"limit=1000{after}")
            assert reply.status == 200 and len(reply.body) < 10 << 20
            found += len(reply.json["dead_letters"])
            assert max(used) >= len(reply.body)
            if reply.json.get("next") is None:
                break
            after = f"&after={reply.json['next']}"
        assert found == 20 and made.engine.budget.used == 0
        with made.engine.budget.held(made.engine.budget.limit - (4 << 20)):
            reply = await made.call("GET", "/v1/groups/g/dead-letters", query="limit=1000")
        assert (reply.status, made.engine.budget.used) == (429, 0)


async def test_a_filter_of_dead_letters_does_not_stop_the_event_loop() -> None:
    async with working() as made:
        await _die(made, 2, "a" * (256 << 10))
        # In CPU time: the machine may pause.
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            while True:
                begun = time.process_time()
                await asyncio.sleep(0.001)
                longest = max(longest, time.process_time() - begun)

        watching = asyncio.create_task(watch())
        begun = time.process_time()
        where = "value like '" + quote("%" + "a_" * 30 + "b%") + "'"
        reply = await made.call("GET", "/v1/groups/g/dead-letters", query=f"where={quote(where, safe='%')}")
        took = time.process_time() - begun
        watching.cancel()
        assert (reply.status, reply.json["dead_letters"]) == (200, [])
        assert longest < max(0.1, took / 4)
