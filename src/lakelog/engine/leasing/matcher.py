"""Matches waiting consumers with the ready partitions of a topic, in rounds."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.engine.leasing.lease_holders import HeldMessages, LeaseHolders
from lakelog.engine.leasing.matching import MAX_PARTITIONS_PER_CONSUMER, WaitingConsumer, may_get_suspect
from lakelog.engine.leasing.partition_view import PartitionView
from lakelog.engine.leasing.ready_partitions import ReadyPartitions


class Matcher:
    """One round of matching: the shares of each consumer so far, and the messages left in each partition."""

    def __init__(self, views: Sequence[PartitionView], ready: ReadyPartitions, holders: LeaseHolders) -> None:
        self._views = views
        self._ready = ready
        self._holders = holders
        self._left: dict[int, int] = {}
        self._wants: dict[WaitingConsumer, int] = {}
        self._chosen: dict[WaitingConsumer, dict[int, int]] = {}
        self._held: dict[str, HeldMessages] = {}

    def match(self, waiting: Sequence[WaitingConsumer]) -> dict[WaitingConsumer, dict[int, int]]:
        """Return which partitions each consumer tries, and for how many messages."""
        if not len(self._ready) or not waiting:
            return {}
        # A member helps out elsewhere only while there is nothing in its own partitions.
        free = [consumer for consumer in waiting if not self._match_own(consumer) and not consumer.strict]
        for number, consumer in enumerate(free):
            for partition in self._ready.for_helper(consumer, number):
                if not self._assign(consumer, partition):
                    break
        return self._chosen

    def _match_own(self, consumer: WaitingConsumer) -> bool:
        """Assign the ready partitions of the consumer's own member. Return whether there are any."""
        is_busy = False
        for partition in self._ready.of_member(consumer):
            is_busy = True
            if not self._assign(consumer, partition):
                break
        return is_busy

    def _assign(self, consumer: WaitingConsumer, partition: int) -> bool:
        """Let the consumer try the partition if messages are left. Return whether it may try more partitions."""
        view = self._views[partition]
        wants = self._wants.get(consumer)
        if wants is None:
            wants = self._wants[consumer] = consumer.take.max_messages
        left = self._left.get(partition)
        if left is None:
            left = self._left[partition] = view.free_count()
        if wants <= 0:
            return False
        # A partition that had nothing for this owner is tried again only after a change.
        if left <= 0 or consumer.empty_at.get(partition) == view.changes:
            return True
        shares = self._chosen.get(consumer)
        apart = may_get_suspect(self._held_by(consumer.take.owner), view, consumer)
        if apart and shares:
            return True
        if shares is None:
            shares = self._chosen[consumer] = {}
        # How much a partition has is not known before its messages are read, or while an answer frees some of them.
        even = wants // max(1, len(self._ready) - len(shares))
        shares[partition] = share = 1 if apart else min(wants, max(left, even, 1))
        self._left[partition] = left - share
        full = apart or len(shares) == MAX_PARTITIONS_PER_CONSUMER
        self._wants[consumer] = 0 if full else wants - share
        return self._wants[consumer] > 0

    def _held_by(self, owner: str) -> HeldMessages:
        held = self._held.get(owner)
        if held is None:
            held = self._held[owner] = self._holders.messages_of(owner)
        return held
