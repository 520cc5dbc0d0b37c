"""Publish as an Arrow stream and as frames."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import pyarrow as pa

from lakelog.batches import encode, from_columns, from_messages, partition_of
from lakelog.model.message import Message
from lakelog.wire.frames import ARROW_MEDIA_TYPE, MEDIA_TYPE, NO_PRODUCER, PublishFrame, write_publish
from tests.unit.server.harness import Reply, World, world

PATH = "/v1/topics/orders/messages"


def _stream(columns: dict[str, Any], *, batches: int = 1) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, -(-table.num_rows // batches)))
    return sink.getvalue().to_pybytes()


async def _send_stream(made: World, columns: dict[str, Any], *, batches: int = 1) -> Reply:
    body = _stream(columns, batches=batches)
    return await made.call("POST", PATH, body=body, headers={"content-type": ARROW_MEDIA_TYPE})


def _frame(values: list[bytes], **given: Any) -> PublishFrame:
    payload = encode(from_messages([Message(value=value) for value in values]))
    fields = {"partition": 0, "epoch": 0, "count": len(values), "sequence": 0, "producer": NO_PRODUCER}
    return PublishFrame(**{**fields, "payload": payload, **given})


async def _send_frames(made: World, *frames: PublishFrame) -> Reply:
    return await made.call("POST", PATH, body=write_publish(frames), headers={"content-type": MEDIA_TYPE})


async def _values(made: World, partition: int) -> list[str]:
    reply = await made.fetch("orders", partition, "limit=10000", headers={"accept": "application/json"})
    return [message.get("value_base64") or message["value"] for message in reply.json["messages"]]


async def test_keys_decide_and_each_message_gets_its_answer() -> None:
    keys = [b"key-%d" % (number % 7) for number in range(100)]
    async with world() as made:
        values = [f"v{number}" for number in range(100)]
        reply = await _send_stream(
            made, {"key": keys, "value": values, "content_type": ["text/plain"] * 100}, batches=3
        )
        results = reply.json["results"]
        stored = {partition: await _values(made, partition) for partition in range(4)}
    assert reply.status == 200
    assert [result["partition"] for result in results] == [partition_of(key, 4) for key in keys]
    for value, result in zip(values, results, strict=True):
        assert stored[result["partition"]][result["offset"]] == value
        assert result["id"].endswith(f"-{result['partition']}-{result['offset']}")


async def test_messages_without_a_key_are_spread_evenly() -> None:
    async with world() as made:
        reply = await _send_stream(made, {"value": [b"x"] * 40})
    assert Counter(result["partition"] for result in reply.json["results"]) == dict.fromkeys(range(4), 10)


async def test_a_partition_column_comes_before_the_key() -> None:
    partitions = pa.array([3, None, 99, 3], pa.int32())
    async with world() as made:
        reply = await _send_stream(
            made, {"value": [b"a", b"b", b"c", b"d"], "key": [b"k"] * 4, "partition": partitions}
        )
    results = reply.json["results"]
    assert reply.status == 207
    assert [result.get("partition") for result in results] == [3, partition_of(b"k", 4), None, 3]
    assert results[2]["error"]["code"] == "partition_not_found"
    assert results[3]["offset"] == results[0]["offset"] + 1


async def test_only_refused_rows() -> None:
    async with world() as made:
        reply = await _send_stream(made, {"value": [b"a"], "partition": pa.array([4], pa.int64())})
    assert reply.status == 207
    assert reply.json["results"][0]["error"]["code"] == "partition_not_found"


async def test_idempotency_keys_of_a_stream_are_kept() -> None:
    columns = {"value": [b"a", b"b", b"a"], "idempotency_key": ["k1", None, "k1"], "partition": [1, 1, 1]}
    async with world() as made:
        first = await _send_stream(made, columns)
        again = await _send_stream(made, columns)
    places = [(result["partition"], result["offset"]) for result in first.json["results"]]
    assert places[0] == places[2] and places[0][0] == 1
    assert [result.get("duplicate", False) for result in again.json["results"]] == [True, False, True]
    assert again.json["results"][0]["offset"] == places[0][1]


async def test_partitions_added_meanwhile_are_found() -> None:
    async with world() as made:
        await made.publish("orders", {"value": 1})
        # Behind the app's back: its cached topic still has four partitions.
        topic = await made.engine.catalog.topic_find(made.scope, "orders")
        assert topic is not None
        altered = await made.engine.catalog.topic_alter(topic, topic.settings, [0] * 12)
        store = made.engine.cells[0]
        await store.heads_create([altered.pid(partition) for partition in range(16)], altered.epoch)
        await store.epoch_raise([altered.pid(partition) for partition in range(16)], altered.epoch)
        keys = [b"key-%d" % number for number in range(50)]
        reply = await _send_stream(made, {"key": keys, "value": keys})
    assert reply.status == 200
    assert [result["partition"] for result in reply.json["results"]] == [partition_of(key, 16) for key in keys]


async def test_a_large_stream_is_read_beside_the_loop() -> None:
    async with world() as made:
        reply = await _send_stream(made, {"value": [b"%05d" % number * 20 for number in range(9000)]}, batches=5)
        assert made.engine.budget.used == 0
    assert (reply.status, len(reply.json["results"])) == (200, 9000)


async def test_bad_streams_are_refused() -> None:
    async with world() as made:
        for body in (b"", b"nonsense", _stream({"value": [b"a"]})[:-30], _stream({"wrong": [b"a"]})):
            reply = await made.call("POST", PATH, body=body, headers={"content-type": ARROW_MEDIA_TYPE})
            assert (reply.status, reply.json["code"]) == (422, "invalid_batch"), body
        missing = await made.call(
            "POST",
            "/v1/topics/missing/messages",
            body=_stream({"value": [b"a"]}),
            headers={"content-type": ARROW_MEDIA_TYPE},
        )
    assert missing.status == 404


async def test_frames_are_passed_on() -> None:
    async with world() as made:
        reply = await _send_frames(made, _frame([b"a", b"b"], partition=1), _frame([b"c"], partition=3))
        again = await _send_frames(made, _frame([b"d"], partition=1))
        assert await _values(made, 1) == ["YQ==", "Yg==", "ZA=="]
    assert reply.status == 200
    assert reply.json["results"] == [
        {"partition": 1, "count": 2, "offset": 0},
        {"partition": 3, "count": 1, "offset": 0},
    ]
    assert again.json["results"] == [{"partition": 1, "count": 1, "offset": 2}]


async def test_numbered_frames_are_recognised() -> None:
    numbered = _frame([b"a"], producer=b"p" * 16, sequence=0)
    async with world() as made:
        first = await _send_frames(made, numbered)
        again = await _send_frames(made, numbered, _frame([b"b"], producer=b"p" * 16, sequence=1))
        gap = await _send_frames(made, _frame([b"c"], producer=b"p" * 16, sequence=9))
    assert first.json["results"] == [{"partition": 0, "count": 1, "offset": 0}]
    assert again.json["results"] == [
        {"partition": 0, "count": 1, "offset": 0, "duplicate": True},
        {"partition": 0, "count": 1, "offset": 1},
    ]
    assert gap.status == 207
    assert gap.json["results"][0]["error"]["code"] == "sequence_refused"


async def test_frames_of_an_old_epoch_are_told_so() -> None:
    async with world() as made:
        await made.call("PATCH", "/v1/topics/orders", json={"partitions": 6})
        reply = await _send_frames(made, _frame([b"a"], epoch=0), _frame([b"b"], partition=9))
    codes = [result["error"]["code"] for result in reply.json["results"]]
    assert (reply.status, codes) == (207, ["epoch_changed", "partition_not_found"])
    assert reply.json["results"][0]["error"]["partitions"] == 6


async def test_bad_frames_are_refused_whole() -> None:
    good = _frame([b"a"])
    hostile = from_columns({"value": [b"a"], "lineage": ["x"]})
    bodies = {
        "empty": b"",
        "cut": write_publish([good])[:-1],
        "magic": b"XXXX" + write_publish([good])[4:],
        "count": write_publish([_frame([b"a"], count=2)]),
        "column": write_publish([_frame([b"a"], payload=encode(hostile))]),
        "garbage": write_publish([good, _frame([b"a"], payload=b"\x01\0\0\0\x02\0\0\0" + bytes(200))]),
        "sequence": write_publish([_frame([b"a"], producer=b"p" * 16, sequence=1 << 63)]),
        "epoch": write_publish([_frame([b"a"], epoch=2**32 - 1)]),
        "header": struct.pack("<4s", b"LKP1"),
    }
    async with world() as made:
        for name, body in bodies.items():
            reply = await made.call("POST", PATH, body=body, headers={"content-type": MEDIA_TYPE})
            assert (reply.status, reply.json["code"]) == (422, "invalid_batch"), (name, reply.body)
        assert await _values(made, 0) == []


async def test_large_frames_are_validated_beside_the_loop() -> None:
    async with world() as made:
        reply = await _send_frames(made, *(_frame([bytes(1000)] * 40, partition=number) for number in range(4)))
    assert reply.status == 200
