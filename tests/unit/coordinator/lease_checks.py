"""Checks of a state after every step: it equals the reference, keeps the promises, and its indexes are correct."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lakelog.coordinator.leasing.codec import decode_state
from lakelog.coordinator.leasing.state import DeliveryState, MessageState
from tests.unit.coordinator.lease_progress import Progress


def check_same(state: DeliveryState, reference: Progress) -> None:
    """Every message is where the reference says, with the same counts."""
    entries = reference.entries
    at = (state.start, state.frontier, state.epoch, state.generation, state.last_token)
    assert at == (
        reference.start,
        reference.frontier,
        reference.epoch,
        reference.generation,
        reference.last_token,
    )
    assert {
        token: (lease.owner, lease.until_ms, lease.suspect, lease.alone, list(lease.open))
        for token, lease in state.leases.items()
    } == {hold.token: (hold.owner, hold.until, hold.suspect, hold.alone, hold.open) for hold in reference.holds}
    waiting = reference.of_stage(MessageState.WAITING)
    assert {offset: (each.due_ms, each.key) for offset, each in state.waiting.items()} == {
        each.offset: (each.due, each.key) for each in waiting
    }
    assert {offset: key for key, offsets in state.skipped.items() for offset in offsets} == {
        each.offset: each.key for each in reference.of_stage(MessageState.SKIPPED)
    }
    for each in reference.of_stage(MessageState.LEASED, MessageState.WAITING, MessageState.SKIPPED):
        if each.deliveries:
            assert state.deliveries(each.offset) == each.deliveries, "1, 2, 3, without a gap (S12)"
        assert state.failures(each.offset) == each.failures
    assert all(tally.suspect == entries[offset].suspect for offset, tally in state.histories.items())
    kept = {offset for offset in [*state.histories, *state.expires] if entries[offset].stage.is_end}
    assert not kept, "what has ended is forgotten"


def check_promises(state: DeliveryState, reference: Progress) -> None:
    """S14, S15, S16."""
    now = Counter(each.stage for each in reference.entries[reference.start :])
    counts = state.counts
    ended = (counts.acked, counts.dead, counts.discarded, counts.filtered, counts.expired, counts.cut)
    ends = (
        MessageState.ACKED,
        MessageState.DEAD,
        MessageState.DISCARDED,
        MessageState.FILTERED,
        MessageState.EXPIRED,
        MessageState.CUT,
    )
    assert ended == tuple(now[end] for end in ends)
    unconsidered = len(reference.entries) - max(state.frontier, state.start)
    unfinished = state.open_count + len(state.waiting) + state.skipped_count + unconsidered
    assert sum(ended) + unfinished == len(reference.entries) - state.start, "conservation (S14)"
    assert state.committed == reference.committed()
    last_open: dict[int, tuple[int, int]] = {}
    for token, lease in state.leases.items():
        for offset, key in lease.open.items():
            if key:
                assert last_open.setdefault(key, (token, offset))[0] == token, "one lease a key (S15)"
                last_open[key] = (token, offset)
    behind = [(offset, each.key) for offset, each in state.waiting.items()]
    behind += [(offset, key) for key, offsets in state.skipped.items() for offset in offsets]
    for offset, key in behind:
        assert key not in last_open or last_open[key][1] < offset, "nothing is open behind an earlier one (S15)"


def check_indexes(state: DeliveryState, body: bytes, now: int) -> None:
    """They are what is built from the state's bytes."""
    assert _indexes(state, now) == _indexes(decode_state(body), now)


def _indexes(state: DeliveryState, now: int) -> dict[str, Any]:
    return {
        "open": state.open_count,
        "skipped": state.skipped_count,
        "open keys": state._open_keys,
        "waiting keys": state._waiting_keys,
        "ready": set(state.ready_keys()),
        "owners": state._owners,
        "due": state.due(now, 10_000),
        "due later": state.due(now + 10**9, 10_000),
        "suspects": state.due_suspects(now + 10**9, 10_000),
        "first": (state.first_due(), state.first_suspect_due(), state.first_until(), state.next_due_ms()),
        "over": [lease.token for lease in state.expired_leases(now + 10**9)],
    }
