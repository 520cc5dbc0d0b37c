"""A summary of a delivery state: enough to tell a group's lag, and whether messages are leased, due or ready."""

from __future__ import annotations

import msgspec

from lakelog.coordinator.leasing.state import DeliveryState


class ProgressSummary(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Summary of one state. Times are milliseconds since 1970 on the database's clock."""

    epoch: int
    frontier: int
    committed: int
    leased: int
    waiting: int
    skipped: int
    leased_until_ms: int = 0
    """When the last lease ends; 0 without a lease."""
    due_ms: int | None = None
    """When the first waiting message is due."""
    has_ready: bool = False
    """True if a skipped message can be delivered because its key is free again."""

    @property
    def finished(self) -> int:
        """How many messages below the frontier are finished. Its growth is the throughput of the group."""
        return self.frontier - self.leased - self.waiting - self.skipped

    def lag(self, high_watermark: int) -> int:
        """Return the number of unfinished messages below the high watermark."""
        return max(0, high_watermark - self.frontier) + self.leased + self.waiting + self.skipped


def summarize(state: DeliveryState) -> ProgressSummary:
    """Return the summary of a state. Every commit needs it, so this must be fast."""
    due = None
    if state.waiting:
        due = min((time for time in (state.first_due(), state.first_suspect_due()) if time is not None), default=None)
    until = 0
    for lease in state.leases.values():
        if lease.until_ms > until:
            until = lease.until_ms
    return ProgressSummary(
        epoch=state.epoch,
        frontier=state.frontier,
        committed=state.committed,
        leased=state.open_count,
        waiting=len(state.waiting),
        skipped=state.skipped_count,
        leased_until_ms=until,
        due_ms=due,
        has_ready=state.has_ready(),
    )
