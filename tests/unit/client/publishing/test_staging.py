"""From columns to staged batches: every row once, where its key belongs, in pieces that a server takes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakelog.batches import decode, partition_of, to_messages, validate
from lakelog.client.publishing.staging import REQUEST_BYTES, StagingEncoder
from lakelog.errors import InvalidBatch, InvalidRequest, TooLarge
from lakelog.model.limits import MAX_BATCH_MESSAGES
from lakelog.model.message import Message
from lakelog.model.topic_info import RetentionLimits, TopicInfo
from lakelog.model.write import StagePiece


def topic(partitions: int) -> TopicInfo:
    return TopicInfo(
        name="orders",
        incarnation=1,
        partitions=partitions,
        epoch=0,
        limits=RetentionLimits(),
        key_field=None,
        idempotency_memory_ms=86_400_000,
        tags=(),
        metadata={},
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def cut(cutter: StagingEncoder, batches: Iterable[pa.RecordBatch]) -> list[list[StagePiece]]:
    return [share for batch in batches for share in cutter.add(batch)] + list(cutter.rest())


def rows(start: int, count: int, **more: object) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch({"key": [f"k{n % 50}" for n in numbers], "value": [str(n) for n in numbers], **more})


def messages(shares: list[list[StagePiece]]) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {}
    for part in (part for share in shares for part in share):
        assert validate(part.payload).num_rows == part.count <= MAX_BATCH_MESSAGES
        found.setdefault(part.partition, []).extend(to_messages(decode(part.payload)))
    return found


def test_rows_go_where_their_keys_belong_and_keep_their_order() -> None:
    cutter = StagingEncoder(topic(4))
    shares = cut(cutter, [rows(start, 7000) for start in range(0, 70_000, 7000)])
    found = messages(shares)
    assert cutter.count == sum(map(len, found.values())) == 70_000
    for partition, each in found.items():
        numbers = [int(message.value or b"") for message in each]
        assert numbers == sorted(numbers)
        assert {partition_of(message.key or b"", 4) for message in each} == {partition}
        assert all(message.created_at is not None for message in each)
    numbers = [part.number for share in shares for part in share]
    assert numbers == list(range(len(numbers)))


def test_what_is_gathered_is_bounded_and_so_are_requests() -> None:
    cutter = StagingEncoder(topic(3), gathered_bytes=3 << 20)
    batch = pa.record_batch({"value": [os.urandom(900_000) for _ in range(4)]})
    ready = [len(list(cutter.add(batch))) for _ in range(3)]
    assert ready == [1, 1, 1]
    shares = cut(StagingEncoder(topic(3)), [batch] * 8)
    assert len(shares) > 1
    assert all(sum(len(part.payload) for part in share) <= REQUEST_BYTES for share in shares)
    assert sum(part.count for share in shares for part in share) == 32


def test_rows_without_a_key_are_spread_and_a_named_partition_comes_first() -> None:
    shares = cut(StagingEncoder(topic(4)), [pa.record_batch({"value": ["x"] * 8000})])
    assert Counter(part.partition for share in shares for part in share).keys() == {0, 1, 2, 3}
    named = rows(0, 4, partition=pa.array([3, None, 9, 3], pa.int64()))
    found = messages(cut(StagingEncoder(topic(4)), [named]))
    assert [message.value for message in found[9]] == [b"2"]  # The server refuses a partition that does not exist.
    assert [message.value for message in found[3]][:1] == [b"0"]
    assert b"1" in [message.value for message in found[partition_of(b"k1", 4)]]


def test_a_negative_partition_is_refused_and_null_means_that_none_is_named() -> None:
    with pytest.raises(InvalidRequest, match="`partition` must be a whole number from 0 to 9999, not -1"):
        cut(StagingEncoder(topic(4)), [rows(0, 2, partition=pa.array([3, -1], pa.int64()))])
    unnamed = cut(StagingEncoder(topic(4)), [rows(0, 2, partition=pa.nulls(2, pa.int64()))])
    assert sum(part.count for share in unnamed for part in share) == 2


def test_equal_values_are_sent_so_that_a_server_takes_them() -> None:
    found = messages(cut(StagingEncoder(topic(1)), [pa.record_batch({"value": ["x" * 500] * 9000})]))
    assert len(found[0]) == 9000


def test_nothing_makes_nothing() -> None:
    cutter = StagingEncoder(topic(1))
    assert cut(cutter, []) == cut(cutter, [rows(0, 0)]) == []
    assert cutter.count == 0


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"value": ["a"], "price": [1]}, InvalidBatch),
        ({"value": ["a"], "idempotency_key": ["k"]}, InvalidBatch),
        ({"key": ["a"]}, InvalidBatch),
        ({"value": ["a" * ((1 << 20) + 1)]}, TooLarge),
        ({"value": ["a"], "partition": [1 << 20]}, InvalidRequest),
    ],
)
def test_what_is_no_message_is_refused_here(columns: dict[str, list[object]], error: type[Exception]) -> None:
    with pytest.raises(error):
        cut(StagingEncoder(topic(1)), [pa.record_batch(columns)])
