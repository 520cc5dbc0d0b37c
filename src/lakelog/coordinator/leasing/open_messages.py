"""The unanswered messages of a lease, as ranges of offsets. Most leases are one range that is answered as a whole.

The messages form a mapping from ascending offsets to 32-bit key hashes (0: no key).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, ItemsView, Iterator, Mapping, Sequence
from itertools import repeat

from lakelog.coordinator.leasing.events import cut_range, in_ranges, of_ranges, pairs, size


class OpenMessages(Mapping[int, int]):
    """The open messages of a lease. `take` removes answered messages."""

    __slots__ = ("_base", "_by_offset", "_count", "_counts", "_keys", "ranges", "unique")

    def __init__(self, ranges: list[int], keys: Sequence[int]) -> None:
        """Start with all messages: `ranges` are flat (first, end) pairs, `keys` has one per message or is empty."""
        self.ranges = ranges
        self._count = size(ranges)
        self._keys = keys
        self._base = ranges[0]
        self._by_offset = dict(zip(of_ranges(ranges), keys, strict=True)) if keys and len(ranges) > 2 else None
        """Keys by offset, only if the messages are not one range."""
        self.unique = set(keys)
        """The distinct keys of open messages, without 0."""
        self.unique.discard(0)
        self._counts: Counter[int] | None = None
        """Number of open messages per key, if some key had several at the start."""
        if len(self.unique) < len(keys) - keys.count(0):
            self._counts = Counter(keys)
            del self._counts[0]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return of_ranges(self.ranges)

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and in_ranges(self.ranges, offset)

    def __getitem__(self, offset: int) -> int:
        if not in_ranges(self.ranges, offset):
            raise KeyError(offset)
        return self.keys_between(offset, offset + 1)[0] if self._keys else 0

    def items(self) -> ItemsView[int, int]:
        return dict(zip(self, self.all_keys() or repeat(0), strict=False)).items()

    @property
    def is_one_each(self) -> bool:
        """Return whether no two open messages have the same key."""
        return self._counts is None

    def of_key(self, key: int) -> int:
        """Return the number of open messages of a key of the lease."""
        return self._counts[key] if self._counts is not None else 1

    def all_keys(self) -> list[int]:
        """Return the key of each open message; empty if none has a key."""
        if self._by_offset is not None:
            return [self._by_offset[offset] for offset in self]
        return [key for first, end in pairs(self.ranges) for key in self.keys_between(first, end)]

    def keys_between(self, first: int, end: int) -> Sequence[int]:
        """Return the keys of a range of messages of the lease; empty if none has a key."""
        if self._by_offset is not None:
            return [self._by_offset[offset] for offset in range(first, end)]
        return self._keys[first - self._base : end - self._base]

    def take_all(self) -> Collection[int]:
        """Remove all open messages and return their distinct keys."""
        self.ranges, self._count = [], 0
        return self.unique

    def take(self, first: int, end: int) -> Collection[int]:
        """Remove open messages of one range. Return the keys that have no open message left; 0 may be among them."""
        cut_range(self.ranges, first, end)
        self._count -= end - first
        freed = self._freed(self.keys_between(first, end))
        self.unique.difference_update(freed)
        return freed

    def _freed(self, keys: Sequence[int]) -> Sequence[int]:
        if self._counts is None:
            return keys
        freed = []
        for key in keys:
            if key:
                self._counts[key] -= 1
                if not self._counts[key]:
                    freed.append(key)
        return freed
