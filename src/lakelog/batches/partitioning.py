"""Chooses the partition of a key like Kafka's default partitioner, and splits a batch by partition.

Messages without a key are marked with -1; the caller distributes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelog.batches.arrays import are_null, from_numbers
from lakelog.model.partitioner import MASK, POSITIVE, SEED, M, murmur2, partition_of

Partitions = npt.NDArray[np.int32]

# Below this number of keys, about 40 numpy calls cost more than hashing key by key.
_FEW_KEYS = 24


def partitions_of(keys: pa.BinaryArray, count: int) -> Partitions:
    """Return the partition of each key; -1 for null."""
    if len(keys) < _FEW_KEYS:
        each = (-1 if key is None else partition_of(key, count) for key in keys.to_pylist())
        return np.fromiter(each, np.int32, len(keys))
    partitions = ((_hashes(keys) & np.uint32(POSITIVE)) % np.uint32(count)).astype(np.int32)
    if keys.null_count:
        partitions[are_null(keys)] = -1
    return partitions


def hash_each(keys: Sequence[bytes | None]) -> list[int]:
    """Return the same as `key_hashes`, for a few keys."""
    return [0 if key is None else (murmur2(key) & MASK) or 1 for key in keys]


def key_hashes(batch: pa.RecordBatch) -> list[int]:
    """Return a 32-bit hash of each message's key. 0 means that the message has no key."""
    index = batch.schema.get_field_index("key")
    if index < 0:
        return [0] * batch.num_rows
    keys = batch.column(index)
    if len(keys) < _FEW_KEYS:
        return hash_each(keys.to_pylist())
    hashes = _hashes(keys)
    hashes[hashes == 0] = 1
    if keys.null_count:
        hashes[are_null(keys)] = 0
    found: list[int] = hashes.tolist()
    return found


def split(batch: pa.RecordBatch, partitions: Partitions, count: int) -> list[tuple[int, pa.RecordBatch]]:
    """Split the batch by partition. Parts are sorted by partition and keep the order of their messages.

    `partitions` has a number from 0 to `count` - 1 for each message.
    """
    if len(partitions) == 0:
        return []
    lowest, highest = int(partitions.min()), int(partitions.max())
    if lowest < 0 or highest >= count or len(partitions) != batch.num_rows:
        raise ValueError(f"split needs {batch.num_rows} partitions of 0 to {count - 1}")
    if lowest == highest:
        return [(lowest, batch)]
    # One take, then slices that share its memory: one take per partition is slower with many partitions.
    order = np.argsort(partitions.astype(np.uint16), kind="stable")
    ordered = batch.take(from_numbers(order, pa.int64()))
    sizes = np.bincount(partitions, minlength=count)
    ends = np.cumsum(sizes)
    present = np.flatnonzero(sizes)
    return [(int(p), ordered.slice(int(ends[p] - sizes[p]), int(sizes[p]))) for p in present]


def _hashes(keys: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    """Return murmur2 of every key. Each pass hashes one 4-byte word of all keys that are long enough."""
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32, count=len(keys) + 1, offset=4 * keys.offset)
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends)
    order = None
    if lengths.min() != lengths.max():
        # Longest first, so that the keys that still have a word are always first.
        order = np.argsort(-(lengths >> 2), kind="stable")
        starts, lengths = starts[order], lengths[order]
    words = _words(data, int(ends[0]), int(ends[-1]))
    starts -= int(ends[0])
    hashes = _mix(words, starts, lengths)
    if order is None:
        return hashes
    unsorted = np.empty_like(hashes)
    unsorted[order] = hashes
    return unsorted


def _words(data: pa.Buffer | None, start: int, end: int) -> npt.NDArray[np.uint32]:
    """Return the little-endian word at each byte. Works on a padded copy, so that the last words may pass the end."""
    padded = np.zeros(end - start + 4, np.uint8)
    if data is not None and end > start:
        padded[:-4] = np.frombuffer(data, np.uint8, count=end - start, offset=start)
    return np.ndarray(end - start + 1, np.dtype("<u4"), padded, strides=(1,))


def _mix(
    words: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32]
) -> npt.NDArray[np.uint32]:
    m = np.uint32(M)
    h = lengths.astype(np.uint32) ^ np.uint32(SEED)
    whole = lengths >> 2
    having = np.searchsorted(-whole, -np.arange(int(whole[0])), side="left")
    for number, count in enumerate(having):
        k = words[starts[:count] + 4 * number] * m
        k ^= k >> np.uint32(24)
        k *= m
        h[:count] *= m
        h[:count] ^= k
    rest = np.flatnonzero(lengths & 3)
    if len(rest):
        bits = ((lengths[rest] & 3) << 3).astype(np.uint32)
        tail = words[starts[rest] + (whole[rest].astype(np.int64) << 2)] & ((np.uint32(1) << bits) - np.uint32(1))
        h[rest] = (h[rest] ^ tail) * m
    h ^= h >> np.uint32(13)
    h *= m
    h ^= h >> np.uint32(15)
    return h
