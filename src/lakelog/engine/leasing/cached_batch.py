"""One batch of the batch cache. The columns for decisions are decoded when it is created, the messages on first use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakelog.batches import columns, decode, decode_columns, decode_small, decoded_bytes, hash_each, key_hashes
from lakelog.coordinator.leasing.operations import ExclusionReason
from lakelog.engine.leasing.exclusions import Exclusions
from lakelog.model.filter import Filter
from lakelog.storage.store import HotBatch

MAX_FILTERS = 32
"""The largest number of groups and filters for which a batch stores the messages that they do not get."""
MAX_EXCLUDED_PER_MESSAGE = 8
"""The largest number of stored exclusions per message of a batch. Each takes about 100 bytes."""

_OVERHEAD_BYTES = 500


class CachedBatch:
    """One batch: the columns for decisions, and its messages, which are decoded on first use."""

    __slots__ = ("_batch", "_exclusions", "expires", "hot", "keys", "partition", "size", "targets")

    def __init__(self, hot: HotBatch, partition: int) -> None:
        self.hot = hot
        self.partition = partition
        self._batch: pa.RecordBatch | None = None
        self._exclusions: dict[tuple[str, str], Exclusions] = {}
        # The decoded size: it is decoded as soon as a part of it is handed out.
        self.size = decoded_bytes(hot.payload) + _OVERHEAD_BYTES
        self.keys: Sequence[int]
        self.expires: dict[int, int]
        self.targets: dict[int, str]
        self.keys, self.expires, self.targets = _decision_columns(hot)

    @property
    def batch(self) -> pa.RecordBatch:
        if self._batch is None:
            self._batch = decode(self.hot.payload)
        return self._batch

    def exclusions(self, group: str, wanted: Filter | None) -> Exclusions | None:
        """Return the messages that this group does not get: filtered out, or for another group.

        None means that the group gets all.
        """
        if wanted is None and not self.targets:
            return None
        name = (group, str(wanted or ""))
        # The last one is the most recently used.
        found = self._exclusions.pop(name, None)
        if found is None:
            self._make_room()
            excluded = {offset: ExclusionReason.FILTERED for offset, target in self.targets.items() if target != group}
            found = Exclusions(self, wanted, excluded)
        self._exclusions[name] = found
        return found

    def _make_room(self) -> None:
        """Forget the exclusions that were not used for the longest time. They are evaluated again when needed."""
        stored = sum(len(each.excluded) for each in self._exclusions.values())
        while len(self._exclusions) >= MAX_FILTERS or stored > MAX_EXCLUDED_PER_MESSAGE * self.hot.count:
            stored -= len(self._exclusions.pop(next(iter(self._exclusions))).excluded)


def _decision_columns(hot: HotBatch) -> tuple[list[int], dict[int, int], dict[int, str]]:
    """Return the key hashes, and by offset the expiry times in milliseconds and the target groups of some messages."""
    small = decode_small(hot.payload)
    if small is not None:
        keys = hash_each(small["key"]) if "key" in small else [0] * hot.count
        times, groups = small.get("expires_at", ()), small.get("target_group", ())
        return keys, {at: time // 1000 for at, time in _present(hot, times)}, dict(_present(hot, groups))
    batch = decode_columns(hot.payload, ("key", "expires_at", "target_group"))
    if batch is None:
        return [0] * hot.count, {}, {}
    names = batch.schema.names
    expires = columns(batch.select(["expires_at"]))["expires_at"] if "expires_at" in names else ()
    targets = batch.column("target_group").to_pylist() if "target_group" in names else ()
    return (
        key_hashes(batch),
        {at: int(time.timestamp() * 1000) for at, time in _present(hot, expires)},
        dict(_present(hot, targets)),
    )


def _present(hot: HotBatch, column: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    return ((hot.base + number, each) for number, each in enumerate(column) if each is not None)
