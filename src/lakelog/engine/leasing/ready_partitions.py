"""The partitions of one topic that may have messages for one group, in the order in which to try them.

A partition becomes ready when its log grows, a retry is due, a lease expires or a key becomes free. It stays ready
until an attempt finds nothing. Out-of-date knowledge here only delays a delivery, because the journals decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from lakelog.coordinator.leasing.operations import Granted, Reply
from lakelog.engine.leasing.matching import (
    LeaseAttempt,
    LeasingContext,
    PartitionView,
    WaitingConsumer,
    may_get_suspect,
)


class ReadyPartitions:
    """`on_ready` is called each time a partition becomes ready."""

    def __init__(self, context: LeasingContext, on_ready: Callable[[], None]) -> None:
        self._context = context
        self._on_ready = on_ready
        self.views: list[PartitionView] = []
        self._ready: dict[int, None] = {}
        self._due: dict[int, None] = {}
        """Ready partitions where a lease has expired or a retry is due."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._ready)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def in_order(self) -> list[int]:
        """Return the partitions to try. Due partitions come first, so that they do not wait behind many others."""
        return [each for each in {**self._due, **self._ready} if self._is_open(each)]

    def of(self, consumer: WaitingConsumer) -> Iterator[int]:
        """Return the ready partitions that the consumer may take from."""
        return (each for each in self._ready if (not consumer.strict or each in consumer.own) and self._is_open(each))

    def has_any_for(self, consumer: WaitingConsumer) -> bool:
        """Return whether a ready partition changed since it had nothing for the consumer."""
        return any(consumer.empty_at.get(each) != self.views[each].changes for each in self.of(consumer))

    def is_unresponsive(self, partition: int) -> bool:
        """Return whether the partition's cell does not respond."""
        return self._context.journals.is_unresponsive(self.views[partition].journal.cell)

    def mark(self, partition: int) -> None:
        """Mark the partition as ready, because something changed there."""
        self.views[partition].changes += 1
        self._ready[partition] = None
        self._on_ready()

    def mark_freed(self, partition: int) -> None:
        """Mark the partition as ready if an answer that is being decided may free messages there."""
        if partition not in self._ready and self.views[partition].may_be_freed():
            self.mark(partition)

    def mark_committed(self, view: PartitionView) -> None:
        """Mark the partition as ready if a commit made messages available, and set the timer for the next retry."""
        journal = view.journal
        in_ms = view.due_in_ms()
        if in_ms is not None and in_ms <= 0:
            self._due[journal.partition] = None
            self.mark(journal.partition)
            return
        if journal.state is None or journal.state.has_ready() or view.backlog():
            self.mark(journal.partition)
        if in_ms is not None:
            self._arm(in_ms)

    def mark_due(self) -> None:
        """Mark partitions as ready where a lease has expired or a retry is due, and set the timer for the next one."""
        self._timer = None
        later: list[int] = []
        for partition, view in enumerate(self.views):
            in_ms = view.due_in_ms()
            if in_ms is not None and in_ms <= 0:
                self._due[partition] = None
                self.mark(partition)
            elif in_ms is not None:
                later.append(in_ms)
        if later:
            self._arm(min(later))

    def mark_attempted(self, consumer: WaitingConsumer, attempt: LeaseAttempt, reply: Reply) -> None:
        """Move the partition to the end, so that partitions take turns; remove it if it has nothing to deliver."""
        view, partition = attempt.view, attempt.partition
        self._due.pop(partition, None)
        if self._ready.pop(partition, 0) is None:
            self._ready[partition] = None
        if isinstance(reply, Granted) or view.changes != attempt.changes:
            return
        if consumer.take.isolates or not view.is_suspect_due():
            self._ready.pop(partition, None)
        elif attempt.alone or not may_get_suspect(self.views, consumer, partition):
            # There is a suspect that another consumer may take, or this one when it tries no other partition.
            consumer.empty_at[partition] = view.changes

    def _is_open(self, partition: int) -> bool:
        """Return whether the partition's cell responds and nothing failed there a moment ago."""
        return not self.views[partition].journal.is_stopped and not self.is_unresponsive(partition)

    def _arm(self, in_ms: int) -> None:
        at = time.monotonic() + in_ms / 1000 + 0.001
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(at - time.monotonic(), self.mark_due)
