"""The partitions in which each owner may hold leases, so that a call need not visit all partitions of the topic.

The entries are candidates: a reader checks them against the state of the journal. No lease that a state has is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from lakelog.coordinator.leasing.operations import AcquireMessages
from lakelog.engine.leasing.partition_view import PartitionView

_SWEEP_ABOVE = 1000


class LeaseHolders:
    """The owners of leases in the partitions of one dispatcher."""

    def __init__(self, views: Sequence[PartitionView]) -> None:
        self._views = views
        self._partitions: dict[str, dict[int, None]] = {}
        self._sweep_above = _SWEEP_ABOVE

    def add(self, owner: str, partition: int) -> None:
        """Record that the owner may get a lease in the partition."""
        self._partitions.setdefault(owner, {})[partition] = None
        if len(self._partitions) > self._sweep_above:
            for each in list(self._partitions):
                self._prune(each)
            self._sweep_above = _SWEEP_ABOVE + 2 * len(self._partitions)

    def read(self, partition: int) -> None:
        """Record the owners of all leases in the cached state of the partition."""
        state = self._views[partition].journal.state
        if state is not None:
            for lease in state.leases.values():
                self.add(lease.owner, partition)

    def views_of(self, owner: str) -> Iterator[PartitionView]:
        """Return the partitions in which the owner may hold leases."""
        self._prune(owner)
        return (self._views[each] for each in self._partitions.get(owner, ()))

    def has_lease_of(self, take: AcquireMessages) -> bool:
        """Return whether the same request has a lease in any partition, according to the cached states."""
        return any(view.has_lease_of(take) for view in self.views_of(take.owner))

    def messages_of(self, owner: str) -> HeldMessages:
        """Return the messages that the owner holds, for several questions in the same turn of the event loop."""
        return HeldMessages(self, owner)

    def _prune(self, owner: str) -> None:
        """Remove partitions without a lease of the owner. While consumers try to get messages there, one may follow."""
        partitions = self._partitions.get(owner, {})
        for partition in list(partitions):
            view = self._views[partition]
            state = view.journal.state
            if not view.wanted and state is not None and not state.held_by(owner):
                del partitions[partition]
        if not partitions:
            self._partitions.pop(owner, None)


class HeldMessages:
    """The messages that one owner holds in each partition.

    They are counted once, at the first question: a count for each partition that is tried would take the product of the
    partitions that are tried and those that are held.
    """

    def __init__(self, holders: LeaseHolders, owner: str) -> None:
        self._holders = holders
        self._owner = owner

    def elsewhere(self, partition: int) -> tuple[int, bool]:
        """Return how many messages the owner holds in other partitions, and whether one of them is a suspect."""
        here, is_suspect = self._by_partition.get(partition, (0, False))
        return self._total - here, self._suspects > is_suspect

    @cached_property
    def _by_partition(self) -> dict[int, tuple[int, bool]]:
        """The number of messages in each partition, and whether one of them is a suspect."""
        held = {}
        for view in self._holders.views_of(self._owner):
            if (state := view.journal.state) is not None:
                leases = state.held_by(self._owner)
                count = sum(len(lease.open) for lease in leases)
                held[view.journal.partition] = count, any(lease.suspect for lease in leases)
        return held

    @cached_property
    def _total(self) -> int:
        return sum(count for count, _ in self._by_partition.values())

    @cached_property
    def _suspects(self) -> int:
        """The number of partitions with a suspect."""
        return sum(is_suspect for _, is_suspect in self._by_partition.values())
