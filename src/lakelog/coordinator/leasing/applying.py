"""`apply` changes a delivery state by an event, in a step and in a replay of the journal. Nothing else changes it.

Events are facts: nothing here depends on policy, time or chance.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from typing import Any

from lakelog.coordinator.leasing import events
from lakelog.coordinator.leasing.closed_leases import ClosedLease, DeliveryOutcome
from lakelog.coordinator.leasing.events import AnyEvent, add_range, of_ranges, pairs, unpack_keys
from lakelog.coordinator.leasing.open_messages import OpenMessages
from lakelog.coordinator.leasing.state import DeliveryHistory, DeliveryState, Lease, WaitingMessage


def apply(state: DeliveryState, event: AnyEvent, at: int) -> None:
    """Apply one event of a commit that was decided at this time."""
    _APPLY[type(event)](state, event, at)


def index(state: DeliveryState) -> None:
    """Build the indexes of a state that was just decoded."""
    state.open_count = 0
    for lease in state.leases.values():
        _index_lease(state, lease)
    for offset, waiting in state.waiting.items():
        _index_waiting(state, offset, waiting)
    state.skipped_count = sum(map(len, state.skipped.values()))
    for key in state.skipped:
        _update_ready(state, key)
    state.closed.measure()


# One function per event -----------------------------------------------------------------------------------------------


def _lease_granted(state: DeliveryState, event: events.LeaseGranted, at: int) -> None:
    lease = Lease(
        event.token,
        event.owner,
        event.request,
        at,
        event.until,
        event.suspect,
        event.alone,
        OpenMessages(list(event.ranges), unpack_keys(event.keys)),
    )
    for other in state.held_by(event.owner):
        # An owner with another lease is not alone with this one. But the owner of a suspect gets more messages only if
        # it isolates the suspect, so the suspect's lease stays alone.
        other.alone = other.alone and other.suspect
    frontier = state.frontier
    if event.ranges[0] < frontier:
        for offset, key in lease.open.items():
            if offset >= frontier:
                break
            _redeliver(state, offset, key)
    state.frontier = max(frontier, event.ranges[-1])
    state.last_token = event.token
    state.leases[event.token] = lease
    _index_lease(state, lease)
    for key in state.skipped.keys() & lease.open.unique:
        _update_ready(state, key)
    _note_expiries(state, event.expires)


def _frontier_moved(state: DeliveryState, event: events.FrontierMoved, at: int) -> None:
    for key, *offsets in event.skipped:
        _skip(state, key, offsets)
        _update_ready(state, key)
    _note_expiries(state, event.expires)
    state.counts.filtered += event.filtered
    state.counts.expired += event.expired
    state.frontier = event.frontier


def _messages_finished(state: DeliveryState, event: events.MessagesFinished, at: int) -> None:
    lease = state.leases[event.token]
    before = len(lease.open)
    if event.ranges == lease.open.ranges:
        _close_all(state, lease, event.verb)
    else:
        for first, end in pairs(event.ranges):
            _close(state, lease, first, end, event.verb)
    if state.histories or state.expires:
        for offset in of_ranges(event.ranges):
            _forget(state, offset)
    if event.filtered:
        state.counts.filtered += before - len(lease.open)
    elif event.verb == DeliveryOutcome.ACKED:
        state.counts.acked += before - len(lease.open)
    else:
        state.counts.discarded += before - len(lease.open)
    _end_if_empty(state, lease, at)


def _messages_returned(state: DeliveryState, event: events.MessagesReturned, at: int) -> None:
    lease = state.leases[event.token]
    for offset, due, failed, suspect in zip(*(event.waits[n::4] for n in range(4)), strict=True):
        key = _take_for_retry(state, lease, offset, event.verb)
        history = state.histories[offset]
        history.failures += failed
        history.suspect = bool(suspect)
        state.waiting[offset] = WaitingMessage(due, key)
        _index_waiting(state, offset, state.waiting[offset])
        _update_ready(state, key)
    for offset in event.back:
        key = _take_for_retry(state, lease, offset, event.verb)
        _skip(state, key, [offset])
        _update_ready(state, key)
    _end_if_empty(state, lease, at)


def _message_died(state: DeliveryState, event: events.MessageDied, at: int) -> None:
    lease = state.leases.get(event.token)
    if lease is not None and event.offset in lease.open:
        _close(state, lease, event.offset, event.offset + 1, DeliveryOutcome.DEAD)
        _end_if_empty(state, lease, at)
    else:
        _stop_waiting(state, event.offset)
    _forget(state, event.offset)
    if event.discarded:
        state.counts.discarded += 1
    else:
        state.counts.dead += 1


def _lease_extended(state: DeliveryState, event: events.LeaseExtended, at: int) -> None:
    lease = state.leases[event.token]
    lease.reissued = lease.reissued or event.reissued
    if event.until != lease.until_ms:
        # Pushed once per end time: `expired_leases` returns a lease once per heap entry.
        lease.until_ms = event.until
        heapq.heappush(state._until, (event.until, event.token))
    if event.alone:
        for other in state.held_by(lease.owner):
            other.alone = other is lease


def _messages_expired(state: DeliveryState, event: events.MessagesExpired, at: int) -> None:
    _drop(state, event.offsets)
    state.counts.expired += len(event.offsets)


def _messages_cut(state: DeliveryState, event: events.MessagesCut, at: int) -> None:
    below = cut_below(state, event.log_start)
    _drop(state, below)
    state.counts.cut += len(below) + max(0, event.log_start - state.frontier)
    state.frontier = max(state.frontier, event.log_start)


def _position_reset(state: DeliveryState, event: events.PositionReset, at: int) -> None:
    fresh = DeliveryState(
        start=event.offset,
        frontier=event.offset,
        epoch=event.epoch,
        generation=state.generation,
        first_token=state.last_token,
        last_token=state.last_token,
    )
    for name in DeliveryState.__slots__:
        setattr(state, name, getattr(fresh, name))


def _position_committed(state: DeliveryState, event: events.PositionCommitted, at: int) -> None:
    state.counts.acked += event.offset - state.frontier
    state.frontier = event.offset


def _generation_fenced(state: DeliveryState, event: events.GenerationFenced, at: int) -> None:
    state.generation = event.generation


def _closed_leases_dropped(state: DeliveryState, event: events.ClosedLeasesDropped, at: int) -> None:
    state.closed.forget(list(state.closed.details)[: event.count], ())


def _closed_leases_trimmed(state: DeliveryState, event: events.ClosedLeasesTrimmed, at: int) -> None:
    state.closed.forget(of_ranges(event.details), event.blocks)


_APPLY: dict[type[Any], Callable[[DeliveryState, Any, int], None]] = {
    events.LeaseGranted: _lease_granted,
    events.FrontierMoved: _frontier_moved,
    events.MessagesFinished: _messages_finished,
    events.MessagesReturned: _messages_returned,
    events.MessageDied: _message_died,
    events.LeaseExtended: _lease_extended,
    events.MessagesExpired: _messages_expired,
    events.MessagesCut: _messages_cut,
    events.PositionReset: _position_reset,
    events.PositionCommitted: _position_committed,
    events.GenerationFenced: _generation_fenced,
    events.ClosedLeasesDropped: _closed_leases_dropped,
    events.ClosedLeasesTrimmed: _closed_leases_trimmed,
}


# Shared steps ---------------------------------------------------------------------------------------------------------


def cut_below(state: DeliveryState, log_start: int) -> list[int]:
    """Return the waiting and skipped messages below the offset."""
    found = [offset for offset in state.waiting if offset < log_start]
    for offsets in state.skipped.values():
        found += offsets[: bisect_left(offsets, log_start)]
    return sorted(found)


def _close_all(state: DeliveryState, lease: Lease, outcome: int) -> None:
    """Remove all open messages from the lease."""
    done = lease.done.setdefault(outcome, [])
    if done:
        for first, end in pairs(lease.open.ranges):
            add_range(done, first, end)
    else:
        done += lease.open.ranges
    state.open_count -= len(lease.open)
    _free(state, lease.open.take_all())


def _close(state: DeliveryState, lease: Lease, first: int, end: int, outcome: int) -> None:
    """Remove the messages of one range from the lease."""
    add_range(lease.done.setdefault(outcome, []), first, end)
    state.open_count -= end - first
    _free(state, lease.open.take(first, end))


def _free(state: DeliveryState, keys: Collection[int]) -> None:
    """Mark keys as free of open messages."""
    state._open_keys.difference_update(keys)
    if state.skipped:
        for key in keys:
            if key in state.skipped:
                _update_ready(state, key)


def _take_for_retry(state: DeliveryState, lease: Lease, offset: int, outcome: int) -> int:
    """Remove a message that will be redelivered from the lease, and return its key."""
    key = lease.open[offset]
    _close(state, lease, offset, offset + 1, outcome)
    history = state.histories.setdefault(offset, DeliveryHistory())
    history.lost = history.lost or outcome == DeliveryOutcome.EXPIRED
    if offset < state._cut_checked:
        state._cut_checked = -1
    return key


def _end_if_empty(state: DeliveryState, lease: Lease, at: int) -> None:
    if lease.open:
        return
    del state.leases[lease.token]
    state._owners[lease.owner].discard(lease.token)
    if not state._owners[lease.owner]:
        del state._owners[lease.owner]
    state.closed.note(lease.token, ClosedLease(lease.owner, at, lease.done))


def _redeliver(state: DeliveryState, offset: int, key: int) -> None:
    """Deliver a message below the frontier, which was waiting or skipped."""
    if not _stop_waiting(state, offset):
        _unskip(state, offset, key)
    history = state.histories.get(offset)
    if history is not None:
        history.deliveries += 1
        history.suspect = False


def _drop(state: DeliveryState, offsets: list[int]) -> None:
    """Remove waiting and skipped messages that have ended."""
    were_skipped = {offset for offset in offsets if not _stop_waiting(state, offset)}
    if were_skipped:
        found = [(key, offset) for key, those in state.skipped.items() for offset in those if offset in were_skipped]
        for key, offset in found:
            _unskip(state, offset, key)
    for offset in offsets:
        _forget(state, offset)


def _stop_waiting(state: DeliveryState, offset: int) -> bool:
    waiting = state.waiting.pop(offset, None)
    if waiting is None:
        return False
    if state._waiting_keys.get(waiting.key) == offset:
        del state._waiting_keys[waiting.key]
    _update_ready(state, waiting.key)
    return True


def _skip(state: DeliveryState, key: int, offsets: list[int]) -> None:
    present = state.skipped.setdefault(key, [])
    if present and present[-1] > offsets[0]:
        for offset in offsets:
            insort(present, offset)
    else:
        present += offsets
    state.skipped_count += len(offsets)


def _unskip(state: DeliveryState, offset: int, key: int) -> None:
    offsets = state.skipped[key]
    del offsets[bisect_left(offsets, offset)]
    state.skipped_count -= 1
    if not offsets:
        del state.skipped[key]
    _update_ready(state, key)


def _forget(state: DeliveryState, offset: int) -> None:
    state.histories.pop(offset, None)
    state.expires.pop(offset, None)


def _update_ready(state: DeliveryState, key: int) -> None:
    """Update the index of ready keys: those with skipped messages and no earlier open or waiting message."""
    if key in state.skipped and key not in state._open_keys and key not in state._waiting_keys:
        state._ready[key] = None
    else:
        state._ready.pop(key, None)


def _index_lease(state: DeliveryState, lease: Lease) -> None:
    state.open_count += len(lease.open)
    state._open_keys |= lease.open.unique
    state._owners.setdefault(lease.owner, set()).add(lease.token)
    heapq.heappush(state._until, (lease.until_ms, lease.token))


def _index_waiting(state: DeliveryState, offset: int, waiting: WaitingMessage) -> None:
    if waiting.key:
        state._waiting_keys[waiting.key] = offset
    heap = state._suspects if state.histories[offset].suspect else state._due
    heapq.heappush(heap, (waiting.due_ms, offset))


def _note_expiries(state: DeliveryState, flat: list[int]) -> None:
    state.expires.update(zip(flat[::2], flat[1::2], strict=True))
