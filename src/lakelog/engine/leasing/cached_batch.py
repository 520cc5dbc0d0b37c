"""One batch of the batch cache. The columns for decisions are decoded at once, the messages on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakelog.batches import columns, decode, decode_columns, decode_small, decoded_bytes, hash_each, key_hashes, rows
from lakelog.coordinator.leasing.operations import ExclusionReason
from lakelog.model.filter import Filter, FilterInput
from lakelog.storage.store import HotBatch

_OVERHEAD_BYTES = 500


class CachedBatch:
    """One batch: the columns for decisions, and its messages, which are decoded on first use."""

    __slots__ = ("_batch", "_fates", "expires", "hot", "keys", "partition", "size", "targets")

    def __init__(self, hot: HotBatch, partition: int) -> None:
        self.hot = hot
        self.partition = partition
        self._batch: pa.RecordBatch | None = None
        self._fates: dict[tuple[str, str], dict[int, ExclusionReason]] = {}
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

    def fates(self, group: str, wanted: Filter | None) -> Mapping[int, ExclusionReason]:
        """Return the messages that this group does not get: filtered out, or for another group."""
        if wanted is None and not self.targets:
            return {}
        name = (group, str(wanted or ""))
        found = self._fates.get(name)
        if found is None:
            found = {offset: ExclusionReason.FILTERED for offset, target in self.targets.items() if target != group}
            if wanted is not None:
                found.update(_unwanted(self, wanted))
            self._fates[name] = found
        return found


def _decision_columns(hot: HotBatch) -> tuple[list[int], dict[int, int], dict[int, str]]:
    """Return the key hashes and, by offset where present, expiry times in milliseconds and target groups."""
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


def _unwanted(cached: CachedBatch, wanted: Filter) -> dict[int, ExclusionReason]:
    names = ["key", "headers", "value", "content_type", "correlation_id"]
    base = cached.hot.base
    found = {}
    for number, (key, headers, value, content_type, correlation_id) in enumerate(rows(cached.batch, names)):
        subject = FilterInput(
            key=key,
            headers=headers,
            value=value,
            content_type=content_type,
            correlation_id=correlation_id,
            offset=base + number,
            partition=cached.partition,
        )
        if not wanted.matches(subject):
            found[base + number] = ExclusionReason.FILTERED
    return found
