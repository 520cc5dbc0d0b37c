"""Publishing: every acknowledged message is stored once, at its offset, unchanged; offsets are dense."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakelog.engine import Frame, FrameReceipt
from lakelog.errors import PartitionNotFound, TooLarge, TopicNotFound
from lakelog.model import limits
from lakelog.model.message import Message, message_id
from lakelog.model.position import Receipt
from tests.acceptance.engines import Log
from tests.unit.engine.support import packed, text


async def test_an_acknowledged_message_is_at_its_offset(log: Log) -> None:
    async with log.server() as server:
        topic = await server.create(3)
        receipts = await server.publish(*(text(str(n)) for n in range(100)))
        logs = [await server.values(partition) for partition in range(3)]
        assert sum(map(len, logs)) == 100
        for n, receipt in enumerate(receipts):
            assert logs[receipt.partition][receipt.offset] == str(n)
            assert receipt.id == message_id(topic.incarnation, receipt.partition, receipt.offset)
            assert not receipt.duplicate


async def test_concurrent_publishers_get_dense_offsets_and_keep_their_own_order(log: Log) -> None:
    async with log.servers(2) as servers:
        await servers[0].create(4)

        async def publisher(number: int) -> list[tuple[str, Receipt]]:
            done, server = list[tuple[str, Receipt]](), servers[number % 2]
            for call in range(15):
                given = [f"{number}-{call}-{n}" for n in range(1 + call % 4)]
                messages = [text(value, partition=number % 3 if call % 2 else None) for value in given]
                done += zip(given, await server.publish(*messages), strict=True)
            return done

        done = [each for many in await asyncio.gather(*(publisher(n) for n in range(12))) for each in many]
        logs = {partition: await servers[1].values(partition) for partition in range(4)}
        assert Counter(value for values in logs.values() for value in values) == Counter(value for value, _ in done)
        assert {(r.partition, r.offset) for _, r in done} == {(p, n) for p in logs for n in range(len(logs[p]))}
        assert all(logs[receipt.partition][receipt.offset] == value for value, receipt in done)
        for values in logs.values():
            for number in range(12):
                own = [tuple(map(int, v.split("-")[1:])) for v in values if v.startswith(f"{number}-")]
                assert own == sorted(own)


async def test_any_message_is_read_back_unchanged(log: Log) -> None:
    async with log.server() as server:
        await server.create()
        given = [
            Message(value=None, key=b"gone"),
            Message(value=b"", key=b""),
            Message(value=os.urandom(1000), key=os.urandom(16), content_type="application/octet-stream"),
            Message(value="ü€😀".encode(), headers={"trace": "1", "": "", "ß": "\x00"}, correlation_id="c-1"),
            Message(value=b"{}", created_at=datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC), idempotency_key="k"),
            Message(value=b"x" * limits.MAX_MESSAGE_BYTES),
        ]
        await server.publish(*given)
        for found, message in zip(await server.messages(), given, strict=True):
            for field in ("value", "key", "content_type", "correlation_id", "created_at", "idempotency_key"):
                assert getattr(found, field) == getattr(message, field), field
            assert dict(found.headers or {}) == dict(message.headers or {})


async def test_the_same_key_always_goes_to_the_same_partition_on_every_server(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(7)
        keys = [f"key-{n}".encode() for n in range(30)]
        first = await here.publish(*(text("a", key=key) for key in keys))
        second = await there.publish(*(text("b", key=key) for key in keys))
        assert [r.partition for r in first] == [r.partition for r in second]
        assert len({r.partition for r in first}) == 7


async def test_messages_without_a_key_are_spread_evenly(log: Log) -> None:
    async with log.server() as server:
        await server.create(4)
        for count in (1, 2, 5, 30, 1, 1):
            await server.publish(*[text("x")] * count)
        assert [head.next_offset for head in await server.heads()] == [10, 10, 10, 10]


async def test_a_refused_message_does_not_hold_up_the_others(log: Log) -> None:
    async with log.server() as server:
        await server.create(2)
        answers = await server.answers(
            text("a", partition=0),
            text("b", partition=2),
            text("c", partition=1),
            text("d", key=b"k" * 2000),
            text("e", partition=0),
        )
        assert [type(answer) for answer in answers] == [Receipt, PartitionNotFound, Receipt, TooLarge, Receipt]
        assert (await server.values(0), await server.values(1)) == (["a", "e"], ["c"])


async def test_frames_are_stored_whole_and_in_order(log: Log) -> None:
    async with log.server() as server:
        await server.create(2)
        given = [Frame(partition=n % 2, payload=packed(*(f"{n}-{m}" for m in range(n + 1)))) for n in range(6)]
        answers = await server.frames(*given)
        for n, answer in enumerate(answers):
            assert isinstance(answer, FrameReceipt)
            assert (answer.partition, answer.count, answer.duplicate) == (n % 2, n + 1, False)
            values = await server.values(n % 2)
            assert values[answer.offset : answer.offset + answer.count] == [f"{n}-{m}" for m in range(n + 1)]


async def test_columns_are_answered_message_by_message(log: Log) -> None:
    async with log.server() as server:
        topic = await server.create(4)
        table = pa.table(
            {
                "value": pa.array([str(n).encode() for n in range(500)]),
                "key": pa.array([None if n % 5 == 0 else str(n % 11).encode() for n in range(500)], pa.binary()),
            }
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=200)
        answers = await server.engine.columns.stream(server.scope, server.name, sink.getvalue().to_pybytes())
        logs = [await server.values(partition) for partition in range(4)]
        assert len(answers) == 500
        for n, receipt in enumerate(answers):
            assert isinstance(receipt, Receipt)
            assert logs[receipt.partition][receipt.offset] == str(n)
            assert receipt.id == message_id(topic.incarnation, receipt.partition, receipt.offset)


async def test_a_missing_topic_is_not_found(log: Log) -> None:
    async with log.server() as server:
        with pytest.raises(TopicNotFound):
            await server.publish(text("a"))
        with pytest.raises(TopicNotFound):
            await server.frames(Frame(partition=0, payload=packed("a")))


async def test_partitions_alternate_over_the_cells(log: Log) -> None:
    async with log.server() as server:
        topic = await server.create(4)
        cells = sorted(server.engine.cells)
        assert len(cells) == log.cells
        assert topic.cells == tuple(cells[n % len(cells)] for n in range(4))
        await server.publish(*(text(str(n), partition=n) for n in range(4)))
        for cell, store in server.engine.cells.items():
            heads = await store.heads_read([topic.pid(n) for n in range(4)])
            assert [head.pid for head in heads] == [topic.pid(n) for n in range(4) if topic.cells[n] == cell]
