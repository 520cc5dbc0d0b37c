"""What owners say about leased messages: acked, discarded, given back, still at work.

A lease that is over, of another owner or unknown refuses all of it, and nothing changes. A repeat of what was said
before gets the same answer again, as long as the lease is remembered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.coordinator.leasing import events
from lakelog.coordinator.leasing.events import in_ranges, size, to_ranges
from lakelog.coordinator.leasing.operations import Done, Extend, GiveBack, Return, Settle
from lakelog.coordinator.leasing.state import Closed, Lease, Outcome
from lakelog.errors import InvalidRequest, LeaseLost, NotOwner, OutOfOrder
from lakelog.model.group import Order

if TYPE_CHECKING:
    from lakelog.coordinator.leasing.step import Decision

Ranges = Sequence[tuple[int, int]]

_SAME = {
    Return.COUNTED: (Outcome.NACKED, Outcome.DIED),
    Return.UNCOUNTED: (Outcome.RELEASED,),
    Return.FATAL: (Outcome.DIED,),
}
"""What became of a message that was given back: a repeat is recognised by it."""


def settle(decision: Decision, operation: Settle) -> Done:
    outcome = Outcome.DISCARDED if operation.discard else Outcome.ACKED
    lease = _lease_of(decision, operation.owner, operation.token, operation.ranges)
    if isinstance(lease, Closed):
        if operation.through:
            _check_through(lease, operation.ranges[-1][1], outcome)
        else:
            _check_repeated(lease, operation.ranges, (outcome,))
        return Done()
    if operation.through:
        end = operation.ranges[-1][1]
        offsets = [offset for offset in lease.open if offset < end]
    else:
        offsets = _open_of(lease, operation.ranges, (outcome,))
        _check_order(decision, lease, offsets)
    if offsets:
        decision.finish(lease.token, outcome, to_ranges(offsets))
    return Done()


def give_back(decision: Decision, operation: GiveBack) -> Done:
    same = _SAME[operation.kind]
    lease = _lease_of(decision, operation.owner, operation.token, operation.ranges)
    if isinstance(lease, Closed):
        _check_repeated(lease, operation.ranges, same)
    elif operation.orphaned and lease.told_again:
        # Whoever repeated the request has it.
        return Done()
    else:
        offsets = _open_of(lease, operation.ranges, same)
        if operation.kind is Return.UNCOUNTED:
            _release(decision, lease, offsets, operation.delay_ms or 0)
        else:
            _check_order(decision, lease, offsets)
            _nack(decision, lease, offsets, operation)
    died = lease.done.get(Outcome.DIED, [])
    dead = [offset for first, end in operation.ranges for offset in range(first, end) if in_ranges(died, offset)]
    return Done(dead=sorted(set(dead))) if dead else Done()


def extend(decision: Decision, operation: Extend) -> Done:
    ranges = [(operation.offset, operation.offset + 1)] if operation.offset is not None else []
    lease = _lease_of(decision, operation.owner, operation.token, ranges)
    if isinstance(lease, Closed):
        raise LeaseLost()
    until = max(lease.until_ms, decision.now + operation.lease_ms)
    # Nobody is alone with several: were it believed, the innocent among them would fail with the guilty.
    alone = operation.alone and not lease.alone and len(lease.open) == 1
    if until != lease.until_ms or alone:
        decision.emit(events.Extended(lease.token, until, alone))
    return Done(until_ms=until)


# Going back -----------------------------------------------------------------------------------------------------------


def _nack(decision: Decision, lease: Lease, offsets: list[int], operation: GiveBack) -> None:
    state, retries = decision.state, decision.config.retries
    dying: dict[int, int] = {}
    blocked: set[int] = set()
    for offset in offsets:
        key = lease.open[offset]
        failures = state.failures(offset) + 1
        if key in blocked:
            # It goes back with the earlier one of its key, which alone counts as failed.
            continue
        if operation.kind is Return.FATAL or failures > retries.max:
            dying[offset] = failures
        elif key:
            blocked.add(key)
    for offset, failures in dying.items():
        decision.die(lease.token, lease.owner, offset, failures, operation.reason)
    fronts, back = _part(decision, lease, [offset for offset in offsets if offset not in dying])
    waits: list[int] = []
    for offset in fronts:
        delay = operation.delay_ms
        if delay is None:
            delay = retries.delay_ms(state.failures(offset) + 1, decision.context.chance)
        waits += (offset, decision.now + delay, 1, 0)
    if waits:
        decision.emit(events.Returned(lease.token, Outcome.NACKED, waits, back))


def _release(decision: Decision, lease: Lease, offsets: list[int], delay_ms: int) -> None:
    cut = bisect_left(offsets, decision.context.log_start)
    if cut:
        # Nobody gets these again, they end with this step: the later ones of their keys stay with the owner.
        gone = [n for offset in offsets[:cut] for n in (offset, decision.now, 0, 0)]
        decision.emit(events.Returned(lease.token, Outcome.RELEASED, gone, []))
        offsets = offsets[cut:]
    fronts, back = _part(decision, lease, offsets)
    waits = [n for offset in fronts for n in (offset, decision.now + delay_ms, 0, 0)]
    if waits or back:
        decision.emit(events.Returned(lease.token, Outcome.RELEASED, waits, back))


def _part(decision: Decision, lease: Lease, offsets: list[int]) -> tuple[list[int], list[int]]:
    """Of messages that go back: those that are first of their key, and those behind others.

    Later ones of the same keys go back too: a message must not stay open behind one that is not.
    """
    open_keys = decision.state._open_keys
    if all(open_keys.get(lease.open[offset], 1) == 1 for offset in offsets):
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


# Finding the lease that is meant --------------------------------------------------------------------------------------


def _lease_of(decision: Decision, owner: str, token: int | None, ranges: Ranges) -> Lease | Closed:
    """The owner's lease, still running, or closed and remembered."""
    state = decision.state
    lease = state.leases.get(token) if token is not None else _holding(decision, owner, ranges)
    if lease is not None:
        if lease.owner != owner:
            raise NotOwner(f"The lease belongs to another owner, not to '{owner}'.", owner=owner)
        if lease.until_ms <= decision.now:
            decision.since(lease.until_ms)
            raise LeaseLost()
        decision.before(lease.until_ms)
        return lease
    closed = state.closed.get(token) if token is not None else _closed_with(decision, owner, ranges[0][0])
    if closed is None or closed.owner != owner:
        raise LeaseLost()
    return closed


def _holding(decision: Decision, owner: str, ranges: Ranges) -> Lease | None:
    """Without a token: the lease that holds the first offset, whoever has it."""
    if not ranges:
        raise InvalidRequest("Say which messages, or which lease.")
    first, state = ranges[0][0], decision.state
    mine = state.held_by(owner)
    for lease in [*mine, *state.leases.values()]:
        if first in lease.open:
            return lease
    # The owner's own lease in which it was answered already.
    return next((lease for lease in mine if _has(lease.done, first)), None)


def _closed_with(decision: Decision, owner: str, offset: int) -> Closed | None:
    """The owner's last closed lease that had the offset."""
    for closed in reversed(decision.state.closed.values()):
        if closed.owner == owner and _has(closed.done, offset):
            return closed
    return None


# What is refused ------------------------------------------------------------------------------------------------------


def _open_of(lease: Lease, ranges: Ranges, same: Sequence[Outcome]) -> list[int]:
    """The open ones of these offsets, ascending, each once; the others must have had the same outcome before."""
    found = []
    for first, end in ranges:
        if end - first > len(lease.open) and end - first > len(lease.open) + sum(map(size, lease.done.values())):
            raise LeaseLost()
        for offset in range(first, end):
            if offset in lease.open:
                found.append(offset)
            elif not _had(lease.done, offset, same):
                raise LeaseLost(f"Offset {offset} is not open in this lease.", offset=offset)
    return found if len(ranges) == 1 else sorted(set(found))


def _check_repeated(closed: Closed, ranges: Ranges, same: Sequence[Outcome]) -> None:
    """Refuses an answer that the lease did not get before it was closed."""
    known = sum(map(size, closed.done.values()))
    for first, end in ranges:
        if end - first > known or not all(_had(closed.done, offset, same) for offset in range(first, end)):
            raise LeaseLost()


def _check_through(closed: Closed, end: int, outcome: Outcome) -> None:
    """Refuses an answer about everything below the end, unless the lease ended by such answers, and not by time."""
    answered, lost = closed.done.get(outcome, [end]), closed.done.get(Outcome.EXPIRED, [end])
    if answered[0] >= end or lost[0] < end:
        raise LeaseLost()


def _check_order(decision: Decision, lease: Lease, offsets: Sequence[int]) -> None:
    """Refuses an answer while an earlier message of the same key is open and stays open."""
    if decision.config.order is Order.NONE or len(offsets) == len(lease.open):
        return
    open_keys = decision.state._open_keys
    leaving: dict[int, int] = {}
    for offset in offsets:
        key = lease.open[offset]
        leaving[key] = leaving.get(key, 0) + 1
    partly = {key: count for key, count in leaving.items() if key and count < open_keys[key]}
    if not partly:
        return
    left, named = sum(partly.values()), set(offsets)
    staying: set[int] = set()
    for offset, key in lease.open.items():
        if key not in partly:
            continue
        if offset not in named:
            staying.add(key)
        elif key in staying:
            raise OutOfOrder(offset=offset)
        else:
            left -= 1
            if not left:
                return


def _has(done: dict[int, list[int]], offset: int) -> bool:
    return any(in_ranges(ranges, offset) for ranges in done.values())


def _had(done: dict[int, list[int]], offset: int, outcomes: Sequence[Outcome]) -> bool:
    return any(outcome in done and in_ranges(done[outcome], offset) for outcome in outcomes)
