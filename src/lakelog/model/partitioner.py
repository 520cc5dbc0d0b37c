"""Chooses the partition of a key like Kafka's default partitioner. `lakelog.batches` hashes many keys at once."""

from __future__ import annotations

from functools import lru_cache

SEED = 0x9747B28C
M = 0x5BD1E995
MASK = 0xFFFFFFFF
POSITIVE = 0x7FFFFFFF
_SIGN = 0x80000000


@lru_cache(maxsize=1 << 14)
def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2, signed as in Java. Cached, because it is slow and keys repeat."""
    length = len(data)
    h = SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * M & MASK
        k ^= k >> 24
        h = (h * M & MASK) ^ (k * M & MASK)
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * M & MASK
    h ^= h >> 13
    h = h * M & MASK
    h ^= h >> 15
    return (h ^ _SIGN) - _SIGN


def partition_of(key: bytes, count: int) -> int:
    """Return the partition of a key in a topic of `count` partitions."""
    return (murmur2(key) & POSITIVE) % count
