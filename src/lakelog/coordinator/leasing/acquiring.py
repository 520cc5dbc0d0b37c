"""Selects messages for a lease: suspects alone, due retries, messages whose key is free again, then new messages.

Messages of a blocked key are skipped, so that one slow key does not delay other keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakelog.coordinator.leasing import events
from lakelog.coordinator.leasing.events import pack_keys, to_ranges
from lakelog.coordinator.leasing.operations import AcquireMessages, ExclusionReason, Granted, NothingAvailable
from lakelog.coordinator.leasing.state import Lease
from lakelog.model.group import Order

if TYPE_CHECKING:
    from lakelog.coordinator.leasing.step import StepInProgress

ALONE_WITHIN_MS = 10_000
"""How long a suspect waits for an owner that can hold it alone. After that it is delivered with other messages."""
PARTITION_KEY = 1
"""The one key of all messages under partition order."""


@dataclass(slots=True)
class _Selection:
    """Messages selected so far, and the messages that were excluded."""

    keys: dict[int, int] = field(default_factory=dict)
    """The keys, by offset, of selected messages below the frontier, which were waiting or skipped."""
    fresh: list[int] = field(default_factory=list)
    """Offsets of selected new messages, ascending."""
    fresh_keys: list[int] = field(default_factory=list)
    frontier: int = 0
    room: int = 0
    """How many more messages fit into the window. Waiting messages are already counted."""
    look_ahead: int = 0
    """How many more messages may be skipped."""
    skipped: dict[int, list[int]] = field(default_factory=dict)
    filtered: int = 0
    expired: int = 0
    expired_offsets: list[int] = field(default_factory=list)


def acquire(decision: StepInProgress, operation: AcquireMessages) -> Granted | NothingAvailable:
    state = decision.state
    again = _repeated(decision, operation)
    if again is not None:
        return again
    if decision.config.paused or operation.max_messages < 1:
        return NothingAvailable()
    held = state.held_by(operation.owner)
    if not operation.isolates and any(lease.suspect for lease in held):
        return NothingAvailable()
    if operation.isolates or not (held or operation.held_elsewhere):
        suspect = _suspect(decision, operation)
        if suspect is not None:
            return suspect
    selection = _Selection(frontier=state.frontier, room=decision.config.window - state.open_count - len(state.waiting))
    _due(decision, operation, selection)
    # After each selection: an expired message no longer blocks its key, so later messages can be delivered.
    _expire(decision, selection)
    _ready(decision, operation, selection)
    _expire(decision, selection)
    _fresh(decision, operation, selection)
    return _grant(decision, operation, selection)


def _repeated(decision: StepInProgress, operation: AcquireMessages) -> Granted | None:
    """Return the lease that the same request got before, if its reply was lost."""
    if not operation.request:
        return None
    for lease in decision.state.held_by(operation.owner):
        if lease.request == operation.request and lease.until_ms > decision.now:
            decision.before(lease.until_ms)
            # Even if one call is decided twice: the lease may belong to a call at another server.
            if not lease.reissued:
                decision.emit(events.LeaseExtended(lease.token, lease.until_ms, False, True))
            return _granted(decision, lease)
    return None


def _suspect(decision: StepInProgress, operation: AcquireMessages) -> Granted | None:
    state, now = decision.state, decision.now
    selection = _Selection(frontier=state.frontier)
    for offset in state.due_suspects(now, 100):
        waiting = state.waiting[offset]
        decision.since(waiting.due_ms)
        if _is_expired(decision, offset):
            selection.expired_offsets.append(offset)
            continue
        selection.keys[offset] = waiting.key
        break
    _expire(decision, selection)
    if not selection.keys:
        return None
    return _lease(decision, operation, selection, suspect=True)


def _due(decision: StepInProgress, operation: AcquireMessages, selection: _Selection) -> None:
    state = decision.state
    due = dict.fromkeys(state.due(decision.now, operation.max_messages), 0)
    late = state.due_suspects(decision.now - ALONE_WITHIN_MS, operation.max_messages - len(due))
    for offset, later_ms in (due | dict.fromkeys(late, ALONE_WITHIN_MS)).items():
        waiting = state.waiting[offset]
        if waiting.key in state._open_keys:
            continue
        decision.since(waiting.due_ms + later_ms)
        if _is_expired(decision, offset):
            selection.expired_offsets.append(offset)
        else:
            selection.keys[offset] = waiting.key


def _ready(decision: StepInProgress, operation: AcquireMessages, selection: _Selection) -> None:
    state = decision.state
    for key in state.ready_keys():
        for offset in state.skipped[key]:
            if len(selection.keys) >= operation.max_messages or selection.room <= 0:
                return
            if _is_expired(decision, offset):
                selection.expired_offsets.append(offset)
                continue
            selection.keys[offset] = key
            selection.room -= 1


def _fresh(decision: StepInProgress, operation: AcquireMessages, selection: _Selection) -> None:
    state, config, candidates = decision.state, decision.config, decision.context.candidates
    if not candidates.start <= state.frontier < candidates.end:
        return
    want = min(operation.max_messages - len(selection.keys), selection.room)
    if config.order is Order.PARTITION and (state.any_blocked() or selection.keys):
        return
    if want <= 0:
        return
    _scan(decision, selection, want)


def _keys(decision: StepInProgress, first: int, end: int) -> Sequence[int]:
    """Return the keys of the candidates from `first` to `end` under the group's order."""
    candidates = decision.context.candidates
    if decision.config.order is Order.KEY:
        return candidates.keys[first - candidates.start : end - candidates.start]
    return [PARTITION_KEY if decision.config.order is Order.PARTITION else 0] * (end - first)


def _scan(decision: StepInProgress, selection: _Selection, want: int) -> None:
    """Select up to `want` new messages in chunks. Usually no key of a chunk is blocked, and all are selected."""
    state, candidates = decision.state, decision.context.candidates
    has_exclusions = bool(candidates.excluded or candidates.expires)
    selection.look_ahead = decision.config.look_ahead - state.skipped_count
    while want > 0 and selection.frontier < candidates.end:
        first, end = selection.frontier, min(selection.frontier + want, candidates.end)
        keys = _keys(decision, first, end)
        blocked = state.blocked_among(keys)
        if blocked or has_exclusions:
            chosen = len(selection.fresh)
            if not _select_each(decision, selection, keys, blocked):
                return
            want -= len(selection.fresh) - chosen
        else:
            selection.fresh += range(first, end)
            selection.fresh_keys += keys
            selection.frontier = end
            want -= end - first


def _select_each(decision: StepInProgress, selection: _Selection, keys: Sequence[int], blocked: set[int]) -> bool:
    """Filter, expire, skip or select each message of a chunk. Return False if no more messages may be skipped."""
    candidates = decision.context.candidates
    has_exclusions = bool(candidates.excluded or candidates.expires)
    for offset, key in enumerate(keys, selection.frontier):
        exclusion = _exclusion(decision, offset) if has_exclusions else None
        if exclusion is ExclusionReason.FILTERED:
            selection.filtered += 1
        elif exclusion is ExclusionReason.EXPIRED:
            selection.expired += 1
        elif key not in blocked:
            selection.fresh.append(offset)
            selection.fresh_keys.append(key)
        elif selection.look_ahead > 0:
            selection.skipped.setdefault(key, []).append(offset)
            selection.look_ahead -= 1
        else:
            selection.frontier = offset
            return False
    selection.frontier += len(keys)
    return True


def _exclusion(decision: StepInProgress, offset: int) -> ExclusionReason | None:
    candidates = decision.context.candidates
    expires = candidates.expires.get(offset)
    if expires is not None and expires <= decision.now:
        decision.since(expires)
        return ExclusionReason.EXPIRED
    return candidates.excluded.get(offset)


def _is_expired(decision: StepInProgress, offset: int) -> bool:
    expires = decision.state.expires.get(offset)
    if expires is None or expires > decision.now:
        return False
    decision.since(expires)
    return True


def _expire(decision: StepInProgress, selection: _Selection) -> None:
    if selection.expired_offsets:
        decision.emit(events.MessagesExpired(selection.expired_offsets))
        selection.expired_offsets = []


def _grant(decision: StepInProgress, operation: AcquireMessages, selection: _Selection) -> Granted | NothingAvailable:
    before = decision.state.frontier
    granted = (
        _lease(decision, operation, selection, suspect=False)
        if selection.keys or selection.fresh
        else NothingAvailable()
    )
    if selection.skipped or selection.filtered or selection.expired or selection.frontier > decision.state.frontier:
        expires = decision.context.candidates.expires
        blocked = [[key, *offsets] for key, offsets in selection.skipped.items()]
        noted = [n for each in blocked for offset in each[1:] if offset in expires for n in (offset, expires[offset])]
        frontier = max(selection.frontier, before)
        decision.emit(events.FrontierMoved(frontier, blocked, selection.filtered, selection.expired, noted))
    return granted


def _lease(decision: StepInProgress, operation: AcquireMessages, selection: _Selection, *, suspect: bool) -> Granted:
    state = decision.state
    before = sorted(selection.keys)
    offsets = [*before, *selection.fresh] if before else selection.fresh
    keys = [*(selection.keys[offset] for offset in before), *selection.fresh_keys] if before else selection.fresh_keys
    expires = decision.context.candidates.expires
    event = events.LeaseGranted(
        state.last_token + 1,
        operation.owner,
        operation.request,
        decision.now + operation.lease_ms,
        to_ranges(offsets),
        pack_keys(keys),
        suspect,
        # A consumer that does not isolate suspects receives one only when it holds no other lease, and nothing else
        # until it answers.
        suspect and not operation.isolates,
        [n for offset in offsets if offset in expires for n in (offset, expires[offset])] if expires else [],
    )
    decision.emit(event)
    return _granted(decision, state.leases[event.token])


def _granted(decision: StepInProgress, lease: Lease) -> Granted:
    histories, ranges = decision.state.histories, lease.open.ranges
    offsets = range(*ranges) if len(ranges) == 2 else list(lease.open)
    known = [offset for offset in offsets if offset in histories] if histories else []
    return Granted(
        token=lease.token,
        until_ms=lease.until_ms,
        suspect=lease.suspect,
        offsets=offsets,
        deliveries={offset: histories[offset].deliveries for offset in known},
        failures={offset: histories[offset].failures for offset in known if histories[offset].failures},
    )
