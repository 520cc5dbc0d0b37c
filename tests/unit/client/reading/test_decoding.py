"""Messages of leases, as a worker decodes them, and batches of fetches."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.batches import encode, from_messages
from lakelog.client.publishing.codec import Codec
from lakelog.client.reading import decoding
from lakelog.client.reading.decoding import batches_of, leased_messages, table_of
from lakelog.model.fetch import FetchedBatches, StoredBatch
from lakelog.model.message import Message
from lakelog.wire.leases import LeaseHead, PieceHead
from tests.unit.batches.test_round_trip import MESSAGES

WORKER = """
import sys
from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.decoding import leased_messages
from lakelog.wire.leases import LeaseHead, PieceHead

payload = sys.stdin.buffer.read()
piece = PieceHead(base=10, count=3, appended_us=0, offsets=OFFSETS, size=len(payload))
lease = LeaseHead(token=1, partition=0, expires_ms=0, pieces=[piece])
found = leased_messages("orders", Codec(None), 1, lease, [payload])
print([(each.offset, each.raw.decode(), each.created_at.year) for each in found], "pandas" in sys.modules)
"""


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ("[(10, 12)]", [(10, "a", 2020), (11, "b", 2021), (12, "c", 2022)]),
        ("[(11, 12)]", [(11, "b", 2021), (12, "c", 2022)]),
        ("[(10, 10), (12, 12)]", [(10, "a", 2020), (12, "c", 2022)]),
    ],
)
def test_a_worker_does_not_load_pandas_for_its_first_message(
    offsets: str, expected: list[tuple[int, str, int]]
) -> None:
    """Arrow imports pandas for some of its functions: half a second in which no handler starts."""
    messages = [
        Message(value=value, created_at=datetime(2020 + n, 1, 1, tzinfo=UTC))
        for n, value in enumerate([b"a", b"b", b"c"])
    ]
    program = [sys.executable, "-c", WORKER.replace("OFFSETS", offsets)]
    done = subprocess.run(program, input=encode(from_messages(messages)), capture_output=True, timeout=60)
    assert done.stdout.decode().strip() == f"{expected} False", done.stderr.decode()


PROGRAM = """
import asyncio, sys
from datetime import UTC, datetime, timedelta
import lakelog
import pyarrow as pa

def column(kind, *values):
    ends = b"".join(sum(map(len, values[:n])).to_bytes(4, "little") for n in range(len(values) + 1))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)

async def main():
    later = datetime.now(UTC) + timedelta(hours=1)
    async with lakelog.connect_async("memory://") as log:
        topic = log.topic("t")
        await topic.create(partitions=3)
        await topic.publish({"a": 1}, key="k", headers={"h": "x"}, expires=later, correlation_id="c")
        await topic.publish("text", idempotency_key="once")
        await topic.publish_many([{"n": n} for n in range(30)])
        await topic.publish_many(
            [
                lakelog.Outgoing({"n": n}, key=None if n % 2 else str(n), headers={"h": "x"} if n % 3 else None,
                                 expires=later, partition=None if n % 5 else 1)
                for n in range(60)
            ]
        )
        await topic.publish_many([lakelog.Outgoing(n, idempotency_key=str(n)) for n in range(5)])
        columns = {"value": column(pa.binary(), b"1", b"2"), "key": column(pa.binary(), b"a", b"b")}
        await topic.publish_columns(pa.table(columns))
        seen, total = [], 2 + 30 + 60 + 5 + 2

        @topic.subscribe(group="g", start_from="earliest", concurrency=8)
        async def handle(value, delivery):
            message = delivery.message
            seen.append((message.value, message.created_at, message.expires_at, message.appended_at, message.headers))

        await log.start()
        while log.counts["t/g"].acked < total:
            await asyncio.sleep(0.01)
        for partition in range(3):
            await topic.fetch_arrow(partition)
            for message in (await topic.fetch(partition)).messages:
                seen.append((message.value, message.created_at, message.expires_at, message.headers))
    print(len(seen) == 2 * total, "pandas" in sys.modules)

asyncio.run(main())
"""


def test_a_program_that_publishes_consumes_and_reads_does_not_load_pandas() -> None:
    """The whole engine runs in this program: neither it nor the client may wait for that import."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=60)
    assert done.stdout.decode().strip() == "True False", done.stderr.decode()


@given(st.lists(MESSAGES, min_size=1, max_size=8), st.data())
def test_a_small_batch_is_decoded_to_the_same_messages_with_and_without_arrow(
    some: list[Message], data: st.DataObject
) -> None:
    payload = encode(from_messages(some))
    picked = sorted(data.draw(st.sets(st.integers(10, 9 + len(some)), min_size=1)))
    piece = PieceHead(base=10, count=len(some), appended_us=7, offsets=[(at, at) for at in picked], size=len(payload))
    lease = LeaseHead(token=1, partition=3, expires_ms=0, pieces=[piece])

    def found() -> list[tuple[Any, ...]]:
        leased = leased_messages("orders", Codec(None), 1, lease, [payload])
        return [msgspec.structs.astuple(message)[:12] for message in leased]

    small = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "decode_small", lambda payload: None)
        assert found() == small
    assert [(row[2], row[4]) for row in small] == [(at, some[at - 10].value) for at in picked]


def test_batches_of_loaded_history_are_joined() -> None:
    """Each has the time of one message, and decoding them one by one takes a hundred times as long."""
    first = datetime(2026, 1, 1, tzinfo=UTC)
    messages = [Message(value=b"%d" % n, key=None if n < 8 else b"k") for n in range(10)]
    stored = [
        StoredBatch(
            base=10 + n,
            count=1,
            appended_at=first + timedelta(days=n),
            epoch=n // 5,
            payload=encode(from_messages([message])),
        )
        for n, message in enumerate(messages)
    ]
    fetched = FetchedBatches(
        incarnation=1, partition=3, start=12, until=20, log_start=0, high_watermark=30, batches=stored
    )
    before, keyed = batches_of(fetched, 19)
    assert before.column("offset").to_pylist() == [12, 13, 14, 15, 16, 17]
    assert before.column("value").to_pylist() == [b"2", b"3", b"4", b"5", b"6", b"7"]
    assert before.column("appended_at").to_pylist() == [first + timedelta(days=n) for n in range(2, 8)]
    assert before.column("epoch").to_pylist() == [0, 0, 0, 1, 1, 1]
    assert (keyed.column("offset").to_pylist(), keyed.column("key").to_pylist()) == ([18], [b"k"]), "other columns"
    table = table_of(fetched)
    assert table.column("partition").to_pylist() == [3] * 8
    assert table.column("appended_at").to_pylist() == [first + timedelta(days=n) for n in range(2, 10)]


def test_the_batches_before_a_damaged_one_are_read() -> None:
    payload = encode(from_messages([Message(value=b"v")]))
    damaged = payload[:8] + b"\xff" * 12 + payload[20:]
    stored = [
        StoredBatch(base=n, count=1, appended_at=datetime(2026, 1, 1, tzinfo=UTC), epoch=0, payload=each)
        for n, each in enumerate((payload, payload, damaged))
    ]
    found = batches_of(
        FetchedBatches(incarnation=1, partition=0, start=0, until=3, log_start=0, high_watermark=3, batches=stored), 3
    )
    assert [next(found).column("offset").to_pylist() for _ in range(2)] == [[0], [1]]
    with pytest.raises((pa.ArrowException, OSError, ValueError)):
        next(found)
