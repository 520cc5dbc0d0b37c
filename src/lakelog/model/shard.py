"""Shards: the part of a large topic that one server delivers to a group first."""

from __future__ import annotations

from dataclasses import dataclass

SHARD_PARTITIONS = 256
"""A topic has no more than one shard for this number of partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One of `count` ranges of partitions of about the same length, counted from 0."""

    index: int = 0
    count: int = 1

    def holds(self, partition: int, partitions: int) -> bool:
        """Return whether the partition of a topic with that many partitions is in the range."""
        return partition * self.count // partitions == self.index


WHOLE = Shard()
"""The shard of a topic that is not divided."""


def shard_count(partitions: int, servers: int) -> int:
    """Return how many shards a topic has: at least one, and at most as many as there are servers."""
    return max(1, min(servers, -(-partitions // SHARD_PARTITIONS)))
