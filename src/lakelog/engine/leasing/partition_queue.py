"""The order in which ready partitions are tried: of the whole topic, and of the member that a partition is assigned to.

A call looks only at the partitions that it tries, and not at all that are ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice


class PartitionQueue:
    """Ready partitions. Those with an expired lease or a due retry come first."""

    def __init__(self, is_open: Callable[[int], bool]) -> None:
        """`is_open` returns whether a partition may be tried now."""
        self._is_open = is_open
        self._owners: dict[int, str] = {}
        """The owner of the member that each partition is assigned to."""
        self._assigned: dict[str, frozenset[int]] = {}
        self._ready = _OwnedOrder(self._owners)
        self._due = _OwnedOrder(self._owners)

    def __len__(self) -> int:
        return len(self._ready.all)

    def __contains__(self, partition: int) -> bool:
        return partition in self._ready.all

    def __iter__(self) -> Iterator[int]:
        """Return all partitions that may be tried, in order."""
        return self._in_order(self._due.all, self._ready.all)

    def turned(self, first: int) -> Iterator[int]:
        """Return all partitions that may be tried, from that place in the order on."""
        return chain(islice(self, first, None), islice(self, first))

    def of(self, owner: str) -> Iterator[int]:
        """Return the partitions of the owner's member that may be tried, in order."""
        return self._in_order(self._due.by_owner.get(owner, {}), self._ready.by_owner.get(owner, {}))

    def add(self, partition: int, *, is_due: bool = False) -> None:
        """Put the partition at the end, unless it is in the queue. A due partition also comes before all others."""
        self._ready.add(partition)
        if is_due:
            self._due.add(partition)

    def tried(self, partition: int) -> None:
        """Move the partition to the end, so that partitions take turns."""
        self._due.remove(partition)
        if self._ready.remove(partition):
            self._ready.add(partition)

    def remove(self, partition: int) -> None:
        self._ready.remove(partition)

    @property
    def has_members(self) -> bool:
        """Return whether partitions are assigned to members that call this process."""
        return bool(self._assigned)

    def is_assigned(self, partition: int) -> bool:
        """Return whether the partition is assigned to a member that calls this process."""
        return partition in self._owners

    def assign(self, owner: str, partitions: frozenset[int]) -> bool:
        """Record which partitions are assigned to the owner's member, and no longer to others.

        Return whether the assignment changed.
        """
        before = self._assigned.get(owner, frozenset())
        if before is partitions or before == partitions:
            return False
        for partition in before - partitions:
            self._give(partition, None)
        taken: dict[str, list[int]] = {}
        for partition in sorted(partitions - before):
            if (other := self._owners.get(partition)) is not None:
                taken.setdefault(other, []).append(partition)
            self._give(partition, owner)
        for other, its in taken.items():
            self._keep(other, self._assigned[other].difference(its))
        self._keep(owner, partitions)
        return True

    def _keep(self, owner: str, partitions: frozenset[int]) -> None:
        if partitions:
            self._assigned[owner] = partitions
        else:
            self._assigned.pop(owner, None)

    def _give(self, partition: int, owner: str | None) -> None:
        is_ready, is_due = self._ready.remove(partition), self._due.remove(partition)
        if owner is None:
            self._owners.pop(partition, None)
        else:
            self._owners[partition] = owner
        if is_ready:
            self._ready.add(partition)
        if is_due:
            self._due.add(partition)

    def _in_order(self, due: dict[int, None], ready: dict[int, None]) -> Iterator[int]:
        is_open = self._is_open
        return (each for each in chain(due, (each for each in ready if each not in due)) if is_open(each))


class _OwnedOrder:
    """Partitions in the order in which they were added, all of them and by owner."""

    def __init__(self, owners: dict[int, str]) -> None:
        self._owners = owners
        self.all: dict[int, None] = {}
        self.by_owner: dict[str, dict[int, None]] = {}

    def add(self, partition: int) -> None:
        self.all[partition] = None
        owner = self._owners.get(partition)
        if owner is not None:
            self.by_owner.setdefault(owner, {})[partition] = None

    def remove(self, partition: int) -> bool:
        """Return whether the partition was there."""
        if self.all.pop(partition, 0) is not None:
            return False
        owner = self._owners.get(partition)
        if owner is not None:
            its = self.by_owner[owner]
            del its[partition]
            if not its:
                del self.by_owner[owner]
        return True
