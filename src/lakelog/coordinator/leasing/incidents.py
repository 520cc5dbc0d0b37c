"""Notes incidents in a step: deliveries that did not end well, and the ends of messages that had one.

They change no state. A step without failures and lost leases notes none, and spends no time on them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from lakelog.coordinator.leasing.events import in_ranges, of_ranges, size
from lakelog.coordinator.leasing.operations import DeadMessage, ReturnMessages
from lakelog.coordinator.leasing.state import Lease
from lakelog.model.incident import Incident, IncidentKind

if TYPE_CHECKING:
    from lakelog.coordinator.leasing.step import StepInProgress

LOST = "The lease ended without an answer."


def note_failures(decision: StepInProgress, lease: Lease, waits: Sequence[int], operation: ReturnMessages) -> None:
    """Note messages that failed. `waits` is that of the event: (offset, due, failed, suspect) for each."""
    decision.incidents += [
        Incident(
            kind=IncidentKind.FAILED,
            offset=offset,
            epoch=decision.state.epoch,
            deliveries=decision.state.deliveries(offset),
            failures=decision.state.failures(offset) + 1,
            owner=lease.owner,
            leased_ms=lease.granted_ms,
            due_ms=due,
            reason=operation.reason,
            traceback=operation.traceback,
        )
        for offset, due in zip(waits[::4], waits[1::4], strict=True)
    ]


def note_losses(
    decision: StepInProgress, lease: Lease, waits: Sequence[int], dying: Collection[int], back: Sequence[int]
) -> None:
    """Note messages of a lease that expired, except those that become dead letters."""
    due = {offset: time for offset, time in zip(waits[::4], waits[1::4], strict=True) if offset not in dying}
    for offset in (*due, *back):
        is_failure = lease.alone and offset in due
        decision.incidents.append(
            Incident(
                kind=IncidentKind.LOST,
                offset=offset,
                epoch=decision.state.epoch,
                deliveries=decision.state.deliveries(offset),
                failures=decision.state.failures(offset) + is_failure,
                owner=lease.owner,
                leased_ms=lease.granted_ms,
                due_ms=due.get(offset),
                reason=LOST,
            )
        )


def note_death(decision: StepInProgress, lease: Lease, dead: DeadMessage) -> None:
    """Note a message that ends after its last failure."""
    decision.incidents.append(
        Incident(
            kind=IncidentKind.DEAD if decision.config.dead_letter else IncidentKind.DISCARDED,
            offset=dead.offset,
            epoch=dead.epoch,
            deliveries=dead.deliveries,
            failures=dead.failures,
            owner=dead.owner,
            leased_ms=lease.granted_ms,
            reason=dead.reason,
            traceback=dead.traceback,
        )
    )


def note_ends(decision: StepInProgress, lease: Lease, kind: IncidentKind, ranges: list[int]) -> None:
    """Note the finished messages that had failed or been lost before. Call it only if the state has histories."""
    histories = decision.state.histories
    if len(histories) < size(ranges):
        found = [offset for offset in histories if in_ranges(ranges, offset)]
    else:
        found = [offset for offset in of_ranges(ranges) if offset in histories]
    for offset in found:
        history = histories[offset]
        # A released message was delivered more than once, too, and nothing was wrong with it.
        if history.failures or history.lost:
            decision.incidents.append(
                Incident(
                    kind=kind,
                    offset=offset,
                    epoch=decision.state.epoch,
                    deliveries=history.deliveries,
                    failures=history.failures,
                    owner=lease.owner,
                    leased_ms=lease.granted_ms,
                )
            )
