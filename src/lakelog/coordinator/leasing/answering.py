"""Answers about leased messages: ack, discard, nack, release and extend.

An answer about a lease that is expired, unknown or of another owner is refused and changes nothing. A repeated answer
gets the same reply again while the lease is remembered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.coordinator.leasing import events
from lakelog.coordinator.leasing.closed_leases import ClosedLease, DeliveryOutcome
from lakelog.coordinator.leasing.events import add_range, in_ranges, of_ranges, pairs, size, to_ranges
from lakelog.coordinator.leasing.incidents import note_failures
from lakelog.coordinator.leasing.operations import Accepted, ExtendLease, FinishMessages, ReturnKind, ReturnMessages
from lakelog.coordinator.leasing.state import DeliveryState, Lease
from lakelog.errors import InvalidRequest, LeaseLost, NotOwner, OutcomeForgotten, OutOfOrder
from lakelog.model import limits
from lakelog.model.group import Order

if TYPE_CHECKING:
    from lakelog.coordinator.leasing.step import StepInProgress

Ranges = Sequence[tuple[int, int]]

_SAME = {
    ReturnKind.NACK: (DeliveryOutcome.NACKED, DeliveryOutcome.DEAD),
    ReturnKind.RELEASE: (DeliveryOutcome.RELEASED,),
    ReturnKind.FATAL_NACK: (DeliveryOutcome.DEAD,),
}
"""Outcomes of a returned message, by which a repeated answer is recognised."""
_DONE = Accepted()
_FINAL = (DeliveryOutcome.ACKED, DeliveryOutcome.DISCARDED, DeliveryOutcome.DEAD)


def finish_messages(decision: StepInProgress, operation: FinishMessages) -> Accepted:
    if operation.once:
        return _finish_once(decision, operation)
    outcome = DeliveryOutcome.DISCARDED if operation.discard else DeliveryOutcome.ACKED
    lease = _lease_of(decision, operation.owner, operation.token, operation.ranges)
    if isinstance(lease, ClosedLease):
        if operation.through:
            _check_through(lease, operation.ranges[-1][1], outcome)
        else:
            _check_repeated(lease, operation.ranges, (outcome,))
        return _DONE
    if operation.through:
        named = _below(lease.open.ranges, operation.ranges[-1][1])
    else:
        named = _open_of(lease, operation.ranges, (outcome,))
        _check_order(decision, lease, named)
    if named:
        decision.finish(lease.token, outcome, named)
    return _DONE


def _finish_once(decision: StepInProgress, operation: FinishMessages) -> Accepted:
    """Ack messages, except those that repeat a value of which a run was accepted: these are finished as filtered.

    Filtered messages have the outcome of discarded ones, so that a repeated answer finds them.
    """
    lease = _lease_of(decision, operation.owner, operation.token, operation.ranges)
    same = (DeliveryOutcome.ACKED, DeliveryOutcome.DISCARDED)
    if isinstance(lease, ClosedLease):
        _check_repeated(lease, operation.ranges, same)
    else:
        acked, filtered = _split_repeats(decision, operation, _open_of(lease, operation.ranges, same))
        if operation.only_taken:
            acked = []
        else:
            _check_order(decision, lease, to_ranges(sorted([*acked, *filtered])))
            decision.accepted_values.update(
                (operation.once[offset], None) for offset in acked if offset in operation.once
            )
        for outcome, offsets in ((DeliveryOutcome.DISCARDED, filtered), (DeliveryOutcome.ACKED, acked)):
            if offsets:
                is_filtered = outcome is DeliveryOutcome.DISCARDED
                decision.finish(lease.token, outcome, to_ranges(offsets), filtered=is_filtered)
    gone = lease.done.get(DeliveryOutcome.DISCARDED, [])
    return Accepted(filtered=[offset for offset in sorted(operation.once) if in_ranges(gone, offset)])


def _split_repeats(
    decision: StepInProgress, operation: FinishMessages, named: list[int]
) -> tuple[list[int], list[int]]:
    """Return the open messages that are the first with their value, or have none, and those that repeat a value."""
    acked: list[int] = []
    filtered: list[int] = []
    seen = {*operation.taken, *decision.accepted_values}
    for offset in of_ranges(named):
        value = operation.once.get(offset)
        if value is not None and value in seen:
            filtered.append(offset)
            continue
        acked.append(offset)
        if value is not None and not operation.only_taken:
            seen.add(value)
    return acked, filtered


def return_messages(decision: StepInProgress, operation: ReturnMessages) -> Accepted:
    same = _SAME[operation.kind]
    lease = _lease_of(decision, operation.owner, operation.token, operation.ranges)
    if isinstance(lease, ClosedLease):
        _check_repeated(lease, operation.ranges, same)
    elif operation.orphaned and lease.reissued:
        # The call that repeated the request has the lease.
        return _DONE
    else:
        named = _open_of(lease, operation.ranges, same)
        offsets = list(of_ranges(named))
        if operation.kind is ReturnKind.RELEASE:
            _release(decision, lease, offsets, operation.delay_ms or 0)
        else:
            _check_order(decision, lease, named)
            _nack(decision, lease, offsets, operation)
    if operation.kind is ReturnKind.RELEASE:
        return _DONE
    return _nack_reply(decision, lease, operation)


def extend(decision: StepInProgress, operation: ExtendLease) -> Accepted:
    ranges = [(operation.offset, operation.offset + 1)] if operation.offset is not None else []
    lease = _running(decision, operation.owner, operation.token, ranges)
    if not isinstance(lease, Lease):
        raise LeaseLost()
    until = max(lease.until_ms, decision.now + operation.lease_ms)
    # An owner of several messages is not alone with one: otherwise messages that did no harm would fail, too.
    alone = operation.alone and not lease.alone and len(lease.open) == 1
    if until != lease.until_ms or alone:
        decision.emit(events.LeaseExtended(lease.token, until, alone))
    return Accepted(until_ms=until)


# Returned messages ----------------------------------------------------------------------------------------------------


def _nack(decision: StepInProgress, lease: Lease, offsets: list[int], operation: ReturnMessages) -> None:
    state, retries = decision.state, decision.config.retries
    dying: dict[int, int] = {}
    blocked: set[int] = set()
    for offset in offsets:
        key = lease.open[offset]
        failures = state.failures(offset) + 1
        if key in blocked:
            # It is returned with the earlier message of its key. Only the earlier one counts as failed.
            continue
        if operation.kind is ReturnKind.FATAL_NACK or failures > retries.max:
            dying[offset] = failures
        elif key:
            blocked.add(key)
    for offset, failures in dying.items():
        decision.end_message(lease.token, lease, offset, failures, operation.reason, operation.traceback)
    fronts, back = _split_returned(lease, [offset for offset in offsets if offset not in dying])
    waits: list[int] = []
    for offset in fronts:
        delay = operation.delay_ms
        if delay is None:
            delay = retries.delay_ms(state.failures(offset) + 1, decision.context.chance)
        waits += (offset, decision.now + delay, 1, 0)
    if waits:
        note_failures(decision, lease, waits, operation)
        decision.emit(events.MessagesReturned(lease.token, DeliveryOutcome.NACKED, waits, back))


def _nack_reply(decision: StepInProgress, lease: Lease | ClosedLease, operation: ReturnMessages) -> Accepted:
    """Return the outcome of the messages of a nack, which may be a repeat."""
    died, waiting = lease.done.get(DeliveryOutcome.DEAD, []), decision.state.waiting
    named = {offset for first, end in operation.ranges for offset in range(first, end)}
    dues = [waiting[offset].due_ms for offset in named if offset in waiting]
    return Accepted(
        dead=sorted(offset for offset in named if in_ranges(died, offset)),
        retry_in_ms=max(0, min(dues) - decision.now) if dues else None,
        max_attempts=decision.config.retries.max + 1,
    )


def _release(decision: StepInProgress, lease: Lease, offsets: list[int], delay_ms: int) -> None:
    cut = bisect_left(offsets, decision.context.log_start)
    if cut:
        # These are cut in this step and not delivered again, so later messages of their keys stay with the owner.
        gone = [n for offset in offsets[:cut] for n in (offset, decision.now, 0, 0)]
        decision.emit(events.MessagesReturned(lease.token, DeliveryOutcome.RELEASED, gone, []))
        offsets = offsets[cut:]
    fronts, back = _split_returned(lease, offsets)
    waits = [n for offset in fronts for n in (offset, decision.now + delay_ms, 0, 0)]
    if waits or back:
        decision.emit(events.MessagesReturned(lease.token, DeliveryOutcome.RELEASED, waits, back))


def _split_returned(lease: Lease, offsets: list[int]) -> tuple[list[int], list[int]]:
    """Split returned messages into the first message of each key and later messages.

    Later messages of the same keys are also returned: a message must not stay open if an earlier one of its key is
    returned.
    """
    if lease.open.is_one_each or all(lease.open.of_key(lease.open[offset]) <= 1 for offset in offsets):
        return offsets, []
    leaving = set(offsets)
    staying: set[int] = set()
    gone: set[int] = set()
    fronts, back = [], []
    for offset, key in lease.open.items():
        if key in gone or (offset in leaving and key in staying):
            back.append(offset)
            gone.add(key)
        elif offset in leaving:
            fronts.append(offset)
            if key:
                gone.add(key)
        elif key:
            staying.add(key)
    return fronts, back


# Finding the lease ----------------------------------------------------------------------------------------------------


def _lease_of(decision: StepInProgress, owner: str, token: int | None, ranges: Ranges) -> Lease | ClosedLease:
    """Return the owner's lease: running, or closed and remembered."""
    running = _running(decision, owner, token, ranges)
    if running is not None:
        return running
    details = decision.state.closed.details
    closed = details.get(token) if token is not None else _closed_with(decision, owner, ranges[0][0])
    if closed is None and token is not None:
        return _by_outcome(decision.state, owner, token, ranges)
    if closed is None or closed.owner != owner:
        raise LeaseLost()
    return closed


def _running(decision: StepInProgress, owner: str, token: int | None, ranges: Ranges) -> Lease | ClosedLease | None:
    """Return the owner's lease unless it is closed. An expired lease is returned as closed."""
    lease = decision.state.leases.get(token) if token is not None else _lease_holding(decision, owner, ranges)
    if lease is None:
        return None
    if lease.owner != owner:
        raise NotOwner(f"The lease belongs to another owner, not to '{owner}'.", owner=owner)
    if lease.until_ms <= decision.now:
        decision.since(lease.until_ms)
        return _as_closed(lease)
    decision.before(lease.until_ms)
    return lease


def _by_outcome(state: DeliveryState, owner: str, token: int, ranges: Ranges) -> ClosedLease:
    """Return a closed lease of which only the single outcome of all messages is remembered.

    Its owner and offsets are unknown, so the given offsets must be able to have had this outcome. Otherwise the caller
    means another lease.
    """
    outcome = state.closed.outcome(token)
    if outcome is None:
        raise OutcomeForgotten() if state.first_token < token <= state.last_token else LeaseLost()
    named = sum(end - first for first, end in ranges)
    if named > limits.MAX_BATCH_MESSAGES or any(first < state.start or end > state.frontier for first, end in ranges):
        raise LeaseLost()
    offsets = {offset for first, end in ranges for offset in range(first, end)}
    if outcome in _FINAL and not state.are_finished(offsets):
        raise LeaseLost()
    return ClosedLease(owner, 0, {outcome: to_ranges(sorted(offsets))})


def _as_closed(lease: Lease) -> ClosedLease:
    """Return an expired lease as `expire` will close it: only answers from before its end count."""
    return ClosedLease(lease.owner, lease.until_ms, {**lease.done, DeliveryOutcome.EXPIRED: list(lease.open.ranges)})


def _lease_holding(decision: StepInProgress, owner: str, ranges: Ranges) -> Lease | None:
    """Return the lease that holds the first offset, of any owner. Used without a token."""
    if not ranges:
        raise InvalidRequest("The request names no messages and no lease. Give offsets or a lease token.")
    first, state = ranges[0][0], decision.state
    mine = state.held_by(owner)
    for lease in [*mine, *state.leases.values()]:
        if first in lease.open:
            return lease
    # The owner's lease in which the offset is already answered.
    return next((lease for lease in mine if _has(lease.done, first)), None)


def _closed_with(decision: StepInProgress, owner: str, offset: int) -> ClosedLease | None:
    """Return the owner's last closed lease that had the offset."""
    for closed in reversed(decision.state.closed.details.values()):
        if closed.owner == owner and _has(closed.done, offset):
            return closed
    return None


# Checks ---------------------------------------------------------------------------------------------------------------


def _open_of(lease: Lease, ranges: Ranges, same: Sequence[DeliveryOutcome]) -> list[int]:
    """Return the open offsets as flat ranges. The other offsets must already have the same outcome."""
    named = _joined(ranges)
    if len(named) == 2 and _is_within(lease.open.ranges, *named):
        return named
    found: list[int] = []
    for first, end in pairs(named):
        if _is_within(lease.open.ranges, first, end):
            found += (first, end)
            continue
        if end - first > len(lease.open) + sum(map(size, lease.done.values())):
            raise LeaseLost()
        for offset in range(first, end):
            if offset in lease.open:
                add_range(found, offset, offset + 1)
            elif not _had(lease.done, offset, same):
                raise LeaseLost(f"Offset {offset} is not open in this lease.", offset=offset)
    return found


def _joined(ranges: Ranges) -> list[int]:
    """Return ranges in any order as ascending, separate flat (first, end) pairs."""
    found: list[int] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1]:
            found[-1] = max(found[-1], end)
        else:
            found += (first, end)
    return found


def _is_within(ranges: list[int], first: int, end: int) -> bool:
    """Return whether one of the flat ranges holds all offsets from `first` to `end`."""
    at = bisect_left(ranges, first + 1)
    return at % 2 == 1 and end <= ranges[at]


def _below(ranges: list[int], end: int) -> list[int]:
    """Return the part of flat ranges below `end`."""
    at = bisect_left(ranges, end)
    return [*ranges[:at], end] if at % 2 else ranges[:at]


def _check_repeated(closed: ClosedLease, ranges: Ranges, same: Sequence[DeliveryOutcome]) -> None:
    """Refuse an answer that the lease did not get before it was closed."""
    known = sum(map(size, closed.done.values()))
    for first, end in ranges:
        if end - first > known or not all(_had(closed.done, offset, same) for offset in range(first, end)):
            raise LeaseLost()


def _check_through(closed: ClosedLease, end: int, outcome: DeliveryOutcome) -> None:
    """Refuse an answer about all messages below `end`, unless such answers closed the lease before it expired."""
    answered, lost = closed.done.get(outcome, [end]), closed.done.get(DeliveryOutcome.EXPIRED, [end])
    if answered[0] >= end or lost[0] < end:
        raise LeaseLost()


def _check_order(decision: StepInProgress, lease: Lease, named: list[int]) -> None:
    """Refuse an answer if an earlier message of the same key stays open."""
    if decision.config.order is Order.NONE or lease.open.is_one_each or named == lease.open.ranges:
        return
    leaving = Counter(key for first, end in pairs(named) for key in lease.open.keys_between(first, end) if key)
    partly = {key: count for key, count in leaving.items() if count < lease.open.of_key(key)}
    if not partly:
        return
    left = sum(partly.values())
    staying: set[int] = set()
    for offset, key in lease.open.items():
        if key not in partly:
            continue
        if not in_ranges(named, offset):
            staying.add(key)
        elif key in staying:
            raise OutOfOrder(offset=offset)
        else:
            left -= 1
            if not left:
                return


def _has(done: dict[int, list[int]], offset: int) -> bool:
    return any(in_ranges(ranges, offset) for ranges in done.values())


def _had(done: dict[int, list[int]], offset: int, outcomes: Sequence[DeliveryOutcome]) -> bool:
    return any(outcome in done and in_ranges(done[outcome], offset) for outcome in outcomes)
