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
"""Under partition order all messages have one key."""


@dataclass(slots=True)
class _Pick:
    """Messages selected so far, and the messages that were passed."""

    keys: dict[int, int] = field(default_factory=dict)
    """Keys by offset, of selected messages that were waiting or skipped and so are below the frontier."""
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
    lapsed: list[int] = field(default_factory=list)


def take(decision: StepInProgress, operation: AcquireMessages) -> Granted | NothingAvailable:
    state = decision.state
    again = _repeated(decision, operation)
    if again is not None:
        return again
    if decision.config.paused or operation.max_messages < 1:
        return NothingAvailable()
    held = state.held_by(operation.owner)
    if not operation.isolates and any(lease.suspect for lease in held):
        return NothingAvailable()
    if operation.isolates or not (held or operation.hands):
        suspect = _suspect(decision, operation)
        if suspect is not None:
            return suspect
    pick = _Pick(frontier=state.frontier, room=decision.config.window - state.open_count - len(state.waiting))
    _due(decision, operation, pick)
    # After each selection: an expired message no longer blocks its key, so later messages can be delivered.
    _lapse(decision, pick)
    _ready(decision, operation, pick)
    _lapse(decision, pick)
    _fresh(decision, operation, pick)
    return _grant(decision, operation, pick)


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
    pick = _Pick(frontier=state.frontier)
    for offset in state.due_suspects(now, 100):
        waiting = state.waiting[offset]
        decision.since(waiting.due_ms)
        if _is_expired(decision, offset):
            pick.lapsed.append(offset)
            continue
        pick.keys[offset] = waiting.key
        break
    _lapse(decision, pick)
    if not pick.keys:
        return None
    return _lease(decision, operation, pick, suspect=True)


def _due(decision: StepInProgress, operation: AcquireMessages, pick: _Pick) -> None:
    state = decision.state
    due = dict.fromkeys(state.due(decision.now, operation.max_messages), 0)
    late = state.due_suspects(decision.now - ALONE_WITHIN_MS, operation.max_messages - len(due))
    for offset, later_ms in (due | dict.fromkeys(late, ALONE_WITHIN_MS)).items():
        waiting = state.waiting[offset]
        if waiting.key in state._open_keys:
            continue
        decision.since(waiting.due_ms + later_ms)
        if _is_expired(decision, offset):
            pick.lapsed.append(offset)
        else:
            pick.keys[offset] = waiting.key


def _ready(decision: StepInProgress, operation: AcquireMessages, pick: _Pick) -> None:
    state = decision.state
    for key in state.ready_keys():
        for offset in state.skipped[key]:
            if len(pick.keys) >= operation.max_messages or pick.room <= 0:
                return
            if _is_expired(decision, offset):
                pick.lapsed.append(offset)
                continue
            pick.keys[offset] = key
            pick.room -= 1


def _fresh(decision: StepInProgress, operation: AcquireMessages, pick: _Pick) -> None:
    state, config, candidates = decision.state, decision.config, decision.context.candidates
    if not candidates.start <= state.frontier < candidates.end:
        return
    want = min(operation.max_messages - len(pick.keys), pick.room)
    if config.order is Order.PARTITION and (state.any_blocked() or pick.keys):
        return
    if want <= 0:
        return
    _scan(decision, pick, want)


def _keys(decision: StepInProgress, first: int, end: int) -> Sequence[int]:
    """Return the keys of the candidates from `first` to `end`, as the group's order sees them."""
    candidates = decision.context.candidates
    if decision.config.order is Order.KEY:
        return candidates.keys[first - candidates.start : end - candidates.start]
    return [PARTITION_KEY if decision.config.order is Order.PARTITION else 0] * (end - first)


def _scan(decision: StepInProgress, pick: _Pick, want: int) -> None:
    """Select up to `want` new messages in chunks. Usually no key of a chunk is blocked, and all are selected."""
    state, candidates = decision.state, decision.context.candidates
    has_fates = bool(candidates.passed or candidates.expires)
    pick.look_ahead = decision.config.look_ahead - state.skipped_count
    while want > 0 and pick.frontier < candidates.end:
        first, end = pick.frontier, min(pick.frontier + want, candidates.end)
        keys = _keys(decision, first, end)
        blocked = state.blocked_among(keys)
        if blocked or has_fates:
            chosen = len(pick.fresh)
            if not _look_at_each(decision, pick, keys, blocked):
                return
            want -= len(pick.fresh) - chosen
        else:
            pick.fresh += range(first, end)
            pick.fresh_keys += keys
            pick.frontier = end
            want -= end - first


def _look_at_each(decision: StepInProgress, pick: _Pick, keys: Sequence[int], blocked: set[int]) -> bool:
    """Filter, expire, skip or select each message of a chunk. Return False if no more messages may be skipped."""
    candidates = decision.context.candidates
    has_fates = bool(candidates.passed or candidates.expires)
    for offset, key in enumerate(keys, pick.frontier):
        fate = _fate(decision, offset) if has_fates else None
        if fate is ExclusionReason.FILTERED:
            pick.filtered += 1
        elif fate is ExclusionReason.EXPIRED:
            pick.expired += 1
        elif key not in blocked:
            pick.fresh.append(offset)
            pick.fresh_keys.append(key)
        elif pick.look_ahead > 0:
            pick.skipped.setdefault(key, []).append(offset)
            pick.look_ahead -= 1
        else:
            pick.frontier = offset
            return False
    pick.frontier += len(keys)
    return True


def _fate(decision: StepInProgress, offset: int) -> ExclusionReason | None:
    candidates = decision.context.candidates
    expires = candidates.expires.get(offset)
    if expires is not None and expires <= decision.now:
        decision.since(expires)
        return ExclusionReason.EXPIRED
    return candidates.passed.get(offset)


def _is_expired(decision: StepInProgress, offset: int) -> bool:
    expires = decision.state.expires.get(offset)
    if expires is None or expires > decision.now:
        return False
    decision.since(expires)
    return True


def _lapse(decision: StepInProgress, pick: _Pick) -> None:
    if pick.lapsed:
        decision.emit(events.MessagesExpired(pick.lapsed))
        pick.lapsed = []


def _grant(decision: StepInProgress, operation: AcquireMessages, pick: _Pick) -> Granted | NothingAvailable:
    before = decision.state.frontier
    granted = _lease(decision, operation, pick, suspect=False) if pick.keys or pick.fresh else NothingAvailable()
    if pick.skipped or pick.filtered or pick.expired or pick.frontier > decision.state.frontier:
        expires = decision.context.candidates.expires
        blocked = [[key, *offsets] for key, offsets in pick.skipped.items()]
        noted = [n for each in blocked for offset in each[1:] if offset in expires for n in (offset, expires[offset])]
        frontier = max(pick.frontier, before)
        decision.emit(events.FrontierMoved(frontier, blocked, pick.filtered, pick.expired, noted))
    return granted


def _lease(decision: StepInProgress, operation: AcquireMessages, pick: _Pick, *, suspect: bool) -> Granted:
    state = decision.state
    before = sorted(pick.keys)
    offsets = [*before, *pick.fresh] if before else pick.fresh
    keys = [*(pick.keys[offset] for offset in before), *pick.fresh_keys] if before else pick.fresh_keys
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
