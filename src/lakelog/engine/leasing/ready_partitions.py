"""The partitions of one topic that may have messages for one group, in the order in which to try them.

A partition becomes ready when its log grows, a retry is due, a lease expires or a key becomes free. It stays ready
until an attempt finds nothing. Out-of-date knowledge here only delays a delivery, because the journals decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from lakelog.coordinator.leasing.operations import Granted, Reply
from lakelog.engine.leasing.lease_holders import LeaseHolders
from lakelog.engine.leasing.matching import LeaseAttempt, LeasingContext, WaitingConsumer, may_get_suspect
from lakelog.engine.leasing.partition_queue import PartitionQueue
from lakelog.engine.leasing.partition_view import PartitionView


class ReadyPartitions:
    """`on_ready` is called each time a partition becomes ready."""

    def __init__(self, context: LeasingContext, on_ready: Callable[[], None]) -> None:
        self._context = context
        self._on_ready = on_ready
        self.views: list[PartitionView] = []
        self.holders = LeaseHolders(self.views)
        self._queue = PartitionQueue(self._is_open)
        self._last: dict[str, WaitingConsumer] = {}
        """The last consumer of each owner that is a member with partitions."""
        self._times: list[tuple[float, int]] = []
        """A heap of the next time at which to look at a partition, because a lease expires or a retry is due there."""
        self._looked_for: dict[int, float] = {}
        """The earliest time of each partition in the heap."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._queue)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def came(self, consumer: WaitingConsumer) -> None:
        """Record which partitions are assigned to the consumer's member, which comes first there."""
        owner = consumer.take.owner
        if consumer.own:
            self._queue.assign(owner, consumer.own)
            self._last[owner] = consumer
            if len(self._last) > 2 * len(self.views):
                self._last = {each: last for each, last in self._last.items() if self._queue.owns_any(each)}

    def turned(self, first: int) -> Iterator[int]:
        """Return the partitions to try, from that place in the order on."""
        return self._queue.turned(first)

    def of_member(self, consumer: WaitingConsumer) -> Iterator[int]:
        """Return the partitions to try that are assigned to the consumer's member, if this is the member's last call.

        Due partitions come first, so that they do not wait behind many others.
        """
        owner = consumer.take.owner
        return self._queue.of(owner) if self._last.get(owner) is consumer else iter(())

    def of(self, consumer: WaitingConsumer) -> Iterator[int]:
        """Return the ready partitions that the consumer may take from."""
        if not consumer.strict:
            return iter(self._queue)
        return (each for each in consumer.own if each in self._queue and self._is_open(each))

    def has_any_for(self, consumer: WaitingConsumer) -> bool:
        """Return whether a ready partition changed since it had nothing for the consumer."""
        return any(consumer.empty_at.get(each) != self.views[each].changes for each in self.of(consumer))

    def is_unresponsive(self, partition: int) -> bool:
        """Return whether the partition's cell does not respond."""
        return self._context.journals.is_unresponsive(self.views[partition].journal.cell)

    def mark(self, partition: int, *, is_due: bool = False) -> None:
        """Mark the partition as ready, because something changed there."""
        self.views[partition].changes += 1
        self._queue.add(partition, is_due=is_due)
        self._on_ready()

    def mark_freed(self, partition: int) -> None:
        """Mark the partition as ready if an answer that is being decided may free messages there."""
        if partition not in self._queue and self.views[partition].may_be_freed():
            self.mark(partition)

    def mark_committed(self, view: PartitionView) -> None:
        """Mark the partition as ready if a commit made messages available, and set the timer for the next retry."""
        journal = view.journal
        in_ms = view.due_in_ms()
        if in_ms is not None and in_ms <= 0:
            self.mark(journal.partition, is_due=True)
            return
        if journal.state is None or journal.state.has_ready() or view.backlog():
            self.mark(journal.partition)
        if in_ms is not None:
            self._look_in(journal.partition, in_ms)
            self._arm()

    def mark_due(self) -> None:
        """Mark partitions as ready where a lease has expired or a retry is due, and set the timer for the next one."""
        self._times.clear()
        self._looked_for.clear()
        for partition in range(len(self.views)):
            self._look(partition)
        self._arm()

    def mark_attempted(self, consumer: WaitingConsumer, attempt: LeaseAttempt, reply: Reply) -> None:
        """Move the partition to the end, so that partitions take turns; remove it if it has nothing to deliver."""
        view, partition = attempt.view, attempt.partition
        self._queue.tried(partition)
        if isinstance(reply, Granted) or view.changes != attempt.changes:
            return
        if consumer.take.isolates or not view.is_suspect_due():
            self._queue.remove(partition)
        elif attempt.alone or not may_get_suspect(self.holders, view, consumer):
            # There is a suspect that another consumer may take, or this one when it tries no other partition.
            consumer.empty_at[partition] = view.changes

    def _is_open(self, partition: int) -> bool:
        """Return whether the partition's cell responds and nothing failed there a moment ago."""
        return not self.views[partition].journal.is_stopped and not self.is_unresponsive(partition)

    # The timer --------------------------------------------------------------------------------------------------------

    def _timer_fired(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._times and self._times[0][0] <= now:
            at, partition = heappop(self._times)
            if self._looked_for.get(partition) == at:
                del self._looked_for[partition]
                self._look(partition)
        self._arm()

    def _look(self, partition: int) -> None:
        """Mark the partition if it is due now; else look again when it will be."""
        in_ms = self.views[partition].due_in_ms()
        if in_ms is not None and in_ms <= 0:
            self.mark(partition, is_due=True)
        elif in_ms is not None:
            self._look_in(partition, in_ms)

    def _look_in(self, partition: int, in_ms: int) -> None:
        at = time.monotonic() + in_ms / 1000 + 0.001
        known = self._looked_for.get(partition)
        if known is None or at < known:
            self._looked_for[partition] = at
            heappush(self._times, (at, partition))

    def _arm(self) -> None:
        """Set the timer for the first time in the heap."""
        if not self._times or (self._timer is not None and self._timer_at <= self._times[0][0]):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._times[0][0]
        self._timer = asyncio.get_running_loop().call_later(
            max(0.0, self._timer_at - time.monotonic()), self._timer_fired
        )
