"""The partitions of one topic that may have messages for one group, in the order in which to try them.

A partition becomes ready when its log grows, a retry is due, a lease expires or a key becomes free. It stays ready
until an attempt finds nothing. Out-of-date knowledge here only delays a delivery, because the journals decide.

In a large topic, each server delivers its own shard and the partitions of the members that call it. All others are
foreign partitions: a consumer that waits gets their messages only if the other servers have left them for a while.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import chain, takewhile

from lakelog.coordinator.leasing.operations import Granted, Reply
from lakelog.engine.leasing.lease_holders import HeldMessages, LeaseHolders
from lakelog.engine.leasing.matching import LeaseAttempt, LeasingContext, WaitingConsumer, may_get_suspect
from lakelog.engine.leasing.partition_queue import PartitionQueue
from lakelog.engine.leasing.partition_view import PartitionView
from lakelog.model.shard import WHOLE, Shard

HELP_SECONDS = 1.5
"""How long a foreign partition is left to other servers. Longer than the watcher takes to see what they did."""
SILENT_SECONDS = 30.0
"""How long after its last call the partitions of a member count as its own; longer than its calls wait."""

SCANNED_ALWAYS = 64
SCAN_SECONDS = 10.0
"""How often more partitions than that are all looked at, in case the clock of a database was set."""


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
        self._came_at: dict[str, float] = {}
        """The time of the last call of each of these owners."""
        self._shard = WHOLE
        self._foreign: dict[int, float] = {}
        """Ready partitions that are left to other servers, with the time since when. The oldest is first."""
        self._help: asyncio.TimerHandle | None = None
        self._times: list[tuple[float, int]] = []
        """A heap of the next time at which to look at a partition, because a lease expires or a retry is due there."""
        self._looked_for: dict[int, float] = {}
        """The earliest time of each partition in the heap."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._scanned_at = -math.inf

    def __len__(self) -> int:
        return len(self._queue) + len(self._foreign)

    def close(self) -> None:
        for timer in (self._timer, self._help):
            if timer is not None:
                timer.cancel()

    def came(self, consumer: WaitingConsumer) -> None:
        """Record which partitions are assigned to the consumer's member, which comes first there."""
        owner = consumer.take.owner
        if consumer.own:
            self._last[owner] = consumer
            self._came_at[owner] = time.monotonic()
            if self._queue.assign(owner, consumer.own):
                self._take_over()

    def divide(self, shard: Shard) -> None:
        """Deliver the partitions of this shard first, and leave others to other servers for a while."""
        if shard != self._shard:
            self._shard = shard
            self._take_over()

    def for_helper(self, consumer: WaitingConsumer, number: int) -> Iterator[int]:
        """Return the partitions that the consumer may try while there is nothing in its own.

        Each consumer begins at another partition, so that all partitions work at once. `number` counts the consumers.
        """
        native = self._queue.turned(number % len(self._queue)) if len(self._queue) else iter(())
        return chain(native, self._left_over(consumer))

    def of_member(self, consumer: WaitingConsumer) -> Iterator[int]:
        """Return the partitions to try that are assigned to the consumer's member, if this is the member's last call.

        Due partitions come first, so that they do not wait behind many others.
        """
        owner = consumer.take.owner
        return self._queue.of(owner) if self._last.get(owner) is consumer else iter(())

    def of(self, consumer: WaitingConsumer) -> Iterator[int]:
        """Return the ready partitions that the consumer may take from."""
        if not consumer.strict:
            return chain(self._queue, self._left_over(consumer))
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
        if self._is_foreign(partition):
            self._foreign.setdefault(partition, time.monotonic())
            self._arm_help()
        else:
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
        self._forget_silent()
        now = time.monotonic()
        if len(self.views) > SCANNED_ALWAYS and now < self._scanned_at + SCAN_SECONDS:
            self._look_at_due()
            return
        self._scanned_at = now
        self._times.clear()
        self._looked_for.clear()
        for partition in range(len(self.views)):
            self._look(partition)
        self._arm()

    def mark_attempted(
        self, consumer: WaitingConsumer, attempt: LeaseAttempt, reply: Reply, held: HeldMessages
    ) -> None:
        """Move the partition to the end, so that partitions take turns; remove it if it has nothing to deliver.

        `held` has the messages that the consumer's owner holds.
        """
        view, partition = attempt.view, attempt.partition
        self._queue.tried(partition)
        was_foreign = self._foreign.pop(partition, None) is not None
        if not isinstance(reply, Granted) and view.changes == attempt.changes:
            if consumer.take.isolates or not view.is_suspect_due():
                self._queue.remove(partition)
                return
            if attempt.alone or not may_get_suspect(held, view, consumer):
                # There is a suspect that another consumer may take, or this one when it tries no other partition.
                consumer.empty_at[partition] = view.changes
        if was_foreign:
            self._foreign[partition] = time.monotonic() - HELP_SECONDS

    def _is_open(self, partition: int) -> bool:
        """Return whether the partition's cell responds and nothing failed there a moment ago."""
        return not self.views[partition].journal.is_stopped and not self.is_unresponsive(partition)

    # Foreign partitions -----------------------------------------------------------------------------------------------

    def _is_foreign(self, partition: int) -> bool:
        """Return whether another server delivers the partition: that of its member, or that of its shard."""
        if self._shard.count == 1 or partition in self._queue:
            return False
        if self._queue.has_members:
            return not self._queue.is_assigned(partition)
        return not self._shard.holds(partition, len(self.views))

    def _left_over(self, consumer: WaitingConsumer) -> Iterator[int]:
        """Return foreign partitions that the consumer may try: those left for long, or all if it waits no longer."""
        waits = not consumer.is_last or bool(consumer.answered)
        since = time.monotonic() - HELP_SECONDS if waits else math.inf
        return filter(self._is_open, takewhile(lambda each: self._foreign[each] <= since, self._foreign))

    def _take_over(self) -> None:
        """Queue the partitions that are not foreign any longer."""
        for partition in [each for each in self._foreign if not self._is_foreign(each)]:
            del self._foreign[partition]
            self._queue.add(partition)
        self._on_ready()

    def _forget_silent(self) -> None:
        """Forget the partitions of members that have not called for long: they may call another server now."""
        before = time.monotonic() - SILENT_SECONDS
        for owner in [each for each, at in self._came_at.items() if at < before]:
            del self._came_at[owner], self._last[owner]
            self._queue.assign(owner, frozenset())

    def _arm_help(self) -> None:
        if self._help is None:
            self._help = asyncio.get_running_loop().call_later(HELP_SECONDS, self._look_at_foreign)

    def _look_at_foreign(self) -> None:
        """Offer the messages that other servers left, except those that they have delivered by now."""
        self._help = None
        since = time.monotonic() - HELP_SECONDS
        for partition in list(takewhile(lambda each: self._foreign[each] <= since, self._foreign)):
            if not self.views[partition].may_have_messages():
                del self._foreign[partition]
        if self._foreign:
            self._arm_help()
            self._on_ready()

    # The timer --------------------------------------------------------------------------------------------------------

    def _timer_fired(self) -> None:
        self._timer = None
        self._look_at_due()

    def _look_at_due(self) -> None:
        """Look at the partitions whose time has come."""
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
