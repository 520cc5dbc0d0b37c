"""A dispatcher's view of one partition: the journal of its group, and what the dispatcher noticed there."""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.coordinator.leasing.operations import AcquireMessages
from lakelog.engine.clock import Clock
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.engine.leasing.journal import Journal


@dataclass(slots=True, eq=False)
class PartitionView:
    """A dispatcher's view of one partition."""

    journal: Journal
    batch_cache: BatchCache
    clock: Clock
    changes: int = 0
    """The number of changes in the partition so far."""
    wanted: int = 0
    """The number of messages that consumers try to get now."""
    ends: tuple[int, int] = (0, 0)
    """Log start and high watermark when the dispatcher last polled."""

    def free_count(self) -> int:
        """Return how many messages may be available beyond those that consumers try to get now."""
        journal, state = self.journal, self.journal.state
        if state is None:
            return 1 - self.wanted
        # No more than the group's window here: a consumer that asks for more gets the rest from other partitions.
        free = max(0, journal.group.settings.window - state.open_count - len(state.waiting))
        ready = self.backlog() + state.skipped_count
        return max(1, min(free, ready) + len(state.waiting)) - self.wanted

    def backlog(self) -> int:
        """Return how many messages are known from the frontier on; at least one if there may be any."""
        return self.batch_cache.backlog(self.journal.pid, self.journal.frontier)

    def may_be_freed(self) -> bool:
        """Return whether an answer may make messages available, because a key is blocked or the window is full."""
        state = self.journal.state
        return state is not None and bool(state.skipped_count or self.backlog())

    def may_have_messages(self) -> bool:
        """Return whether the group may get messages here now, as far as this process has read."""
        state, due = self.journal.state, self.due_in_ms()
        if state is None or state.has_ready() or (due is not None and due <= 0):
            return True
        return self.batch_cache.has_more(self.journal.pid, state.frontier)

    def due_in_ms(self) -> int | None:
        return self.journal.due_in_ms(self.clock)

    def is_suspect_due(self) -> bool:
        return self.journal.is_suspect_due(self.clock)

    def has_lease_of(self, take: AcquireMessages) -> bool:
        """Return whether the same request has a lease in this partition, according to the cached state."""
        state = self.journal.state
        if state is None or not state.leases or not take.request:
            return False
        return any(lease.request == take.request for lease in state.held_by(take.owner))
