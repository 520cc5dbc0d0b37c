"""Keys go where Kafka's default partitioner puts them, one by one and all at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.batches import from_columns, from_messages, murmur2, partition_of, partitions_of, split, to_messages
from tests.unit.batches.samples import messages

# From Kafka's own tests of its murmur2.
KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), KAFKA.items())
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_the_vectorised_hash_is_kafkas() -> None:
    count = 1 << 30
    found = partitions_of(pa.array(list(KAFKA) * 10, pa.binary()), count)
    assert found.tolist() == [(hash_ & 0x7FFFFFFF) % count for hash_ in KAFKA.values()] * 10


KEYS = st.lists(st.none() | st.binary(max_size=70), max_size=80) | st.integers(0, 9).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=30, max_size=60)
)


@given(KEYS, st.integers(1, 10_000), st.integers(0, 40))
def test_all_at_once_is_as_one_by_one(keys: list[bytes | None], count: int, start: int) -> None:
    found = partitions_of(pa.array(keys, pa.binary()).slice(start), count)
    assert found.dtype == np.int32
    assert found.tolist() == [-1 if key is None else partition_of(key, count) for key in keys[start:]]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=100))
def test_a_split_keeps_every_message_and_the_order_within_partitions(chosen: list[int]) -> None:
    batch = from_columns({"value": [b"%d" % n for n in range(len(chosen))]})
    parts = split(batch, np.array(chosen, np.int32), 7)
    assert [partition for partition, _ in parts] == sorted(set(chosen))
    for partition, part in parts:
        expected = [b"%d" % n for n, other in enumerate(chosen) if other == partition]
        assert part.column("value").to_pylist() == expected


def test_a_split_keeps_all_columns() -> None:
    some = messages(20)
    partitions = np.arange(20, dtype=np.int32) % 3
    for partition, part in split(from_messages(some), partitions, 3):
        assert to_messages(part) == some[partition::3]


def test_one_partition_is_not_copied() -> None:
    batch = from_messages(messages(4))
    [(partition, part)] = split(batch, np.full(4, 2, np.int32), 3)
    assert partition == 2
    assert part is batch


@pytest.mark.parametrize("partitions", [[0, -1], [0, 3], [0]])
def test_a_split_needs_a_partition_for_each_message(partitions: list[int]) -> None:
    with pytest.raises(ValueError, match="split needs 2 partitions of 0 to 2"):
        split(from_messages(messages(2)), np.array(partitions, np.int32), 3)
