"""Columns to pieces: nothing is lost or changed by cutting, and batches keep within limits."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.batches import decode, partition_of, to_messages, validate
from lakelog.client.publishing.columns import (
    ColumnBuffer,
    PartitionBatch,
    PublishRows,
    RareFields,
    moved,
    parts_of,
    rows_of_messages,
    rows_of_table,
)
from lakelog.client.publishing.partition_choice import MAX_BATCH_BYTES, KeylessPartitioner
from lakelog.errors import InvalidBatch, InvalidRequest, TooLarge
from lakelog.model.message import Message
from lakelog.model.topic_info import RetentionLimits, TopicInfo


def topic(partitions: int, epoch: int = 0) -> TopicInfo:
    return TopicInfo(
        name="t",
        incarnation=1,
        partitions=partitions,
        epoch=epoch,
        limits=RetentionLimits(),
        key_field=None,
        idempotency_memory_ms=3_600_000,
        tags=(),
        metadata={},
        created_at=datetime.now(UTC),
    )


def placed(parts: list[PartitionBatch]) -> list[tuple[int, int, bytes | None]]:
    found = []
    for part in parts:
        messages = to_messages(decode(part.payload))
        assert len(messages) == part.count
        found += [
            (index, part.partition, message.value) for index, message in zip(part.messages_at(), messages, strict=True)
        ]
    return sorted(found)


@settings(deadline=None)
@given(
    keys=st.lists(st.none() | st.binary(max_size=9), min_size=1, max_size=40),
    chosen=st.lists(st.none() | st.integers(0, 3), min_size=40, max_size=40),
    partitions=st.integers(1, 6),
)
def test_every_message_is_in_one_piece_of_its_partition(
    keys: list[bytes | None], chosen: list[int | None], partitions: int
) -> None:
    messages = [
        Message(value=b"%d" % n, key=key, partition=named)
        for n, (key, named) in enumerate(zip(keys, chosen, strict=False))
    ]
    parts = parts_of(rows_of_messages(messages), topic(partitions), KeylessPartitioner())
    found = placed(parts)
    assert [value for _, _, value in found] == [message.value for message in messages]
    again = placed(moved(parts, topic(partitions + 3, epoch=1), KeylessPartitioner()))
    assert [value for _, _, value in again] == [message.value for message in messages]
    for count, result in ((partitions, found), (partitions + 3, again)):
        for message, (_, partition, _) in zip(messages, result, strict=True):
            if message.partition is not None:
                assert partition == message.partition
            elif message.key is not None:
                assert partition == partition_of(message.key, count)
            else:
                assert 0 <= partition < count


def test_columns_carry_all_fields() -> None:
    columns = ColumnBuffer()
    columns.opened_at = 1_700_000_000.25
    expires = datetime(2030, 1, 1, tzinfo=UTC)
    columns.values += [b"a", None, b"c"]
    columns.keys += [b"k", None, None]
    columns.content_types += [None, None, "text/plain"]
    columns.extras.append(RareFields(1, {"h": "1"}, "c-1", expires, 2))
    rows = columns.batch()
    first, second, third = to_messages(rows.batch)
    assert first == Message(value=b"a", key=b"k", created_at=datetime.fromtimestamp(1_700_000_000.25, UTC))
    assert (second.value, second.headers, second.correlation_id, second.expires_at) == (
        None,
        {"h": "1"},
        "c-1",
        expires,
    )
    assert third.content_type == "text/plain"
    assert rows.chosen is not None
    assert rows.chosen.tolist() == [-1, 2, -1]
    told = columns.messages()
    assert [(message.value, message.headers, message.partition) for message in told] == [
        (b"a", None, None),
        (None, {"h": "1"}, 2),
        (b"c", None, None),
    ]


def test_what_compresses_too_well_is_sent_as_it_is() -> None:
    rows = rows_of_messages([Message(value=b"x" * 500)] * 5_000)
    [part] = parts_of(rows, topic(1), KeylessPartitioner())
    assert validate(part.payload).num_rows == 5_000


def test_keyless_messages_go_in_blocks() -> None:
    partitioner = KeylessPartitioner()
    assert len(set(partitioner.many(500, 8).tolist())) == 1
    partitions = partitioner.many(10_000, 4)
    assert sorted((partitions == n).sum() for n in range(4)) == [2500] * 4
    assert len({partitioner.one(4) for _ in range(4)}) == 4


def test_a_table_is_cut_into_what_fits() -> None:
    parts = list(rows_of_table(pa.table({"value": [b"x" * 1000] * 25_000})))
    assert sum(part.batch.num_rows for part in parts) == 25_000
    assert all(part.batch.nbytes <= MAX_BATCH_BYTES * 1.1 for part in parts)
    skewed = pa.table({"value": [b""] * 3_000 + [b"x" * 1_000_000] * 20})
    parts = list(rows_of_table(skewed))
    assert sum(part.batch.num_rows for part in parts) == 3_020
    assert all(part.batch.nbytes <= MAX_BATCH_BYTES * 1.1 for part in parts)


def test_a_table_is_checked() -> None:
    with pytest.raises(TooLarge):
        list(rows_of_table(pa.table({"value": [b"x" * ((1 << 20) + 1)]})))
    with pytest.raises(InvalidBatch):
        list(rows_of_table(pa.table({"key": ["a"]})))
    with pytest.raises(InvalidRequest):
        list(rows_of_table(pa.table({"value": ["a"], "partition": [70_000]})))
    [rows] = rows_of_table(pa.table({"value": ["a", "b"], "partition": pa.array([None, None], pa.int64())}))
    assert isinstance(rows, PublishRows)
    assert rows.chosen is not None
    assert rows.chosen.tolist() == [-1, -1]
