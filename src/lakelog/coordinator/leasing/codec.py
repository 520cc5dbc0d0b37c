"""Encodes the events of a commit with their summary, or a whole delivery state, with a format number in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lakelog.coordinator.leasing.applying import apply, index
from lakelog.coordinator.leasing.closed_leases import ClosedLease, ClosedLeases, unpacked
from lakelog.coordinator.leasing.events import AnyEvent, pack_keys, to_ranges, unpack_keys
from lakelog.coordinator.leasing.open_messages import OpenMessages
from lakelog.coordinator.leasing.state import DeliveryHistory, DeliveryState, FinishedCounts, Lease, WaitingMessage
from lakelog.coordinator.leasing.summary import ProgressSummary
from lakelog.errors import UnsupportedFormat

FORMAT = 2
_READABLE = (1, 2)
"""Format 1 has no outcomes by token, no first token, and a pair per open message."""

_encoder = msgspec.msgpack.Encoder()


class _Commit(msgspec.Struct, frozen=True, array_like=True):
    format: int
    at: int
    events: list[AnyEvent]


class _CommitFigures(msgspec.Struct, frozen=True, array_like=True):
    """A commit whose events are not decoded."""

    format: int
    at: int
    events: msgspec.Raw
    figures: ProgressSummary | None = None


_commit = msgspec.msgpack.Decoder(_Commit)
_figures = msgspec.msgpack.Decoder(_CommitFigures)
_format = msgspec.msgpack.Decoder(list[Any])
_COUNTS = ("acked", "dead", "discarded", "filtered", "expired", "cut")


def encode_events(events: Sequence[AnyEvent], at: int, figures: ProgressSummary) -> bytes:
    """Return a commit as bytes: its events, and the summary of the resulting state."""
    return _encoder.encode((FORMAT, at, events, figures))


def decode_summary(body: bytes) -> ProgressSummary | None:
    """Return the summary after a commit without replaying the journal; None if the commit has none."""
    try:
        found = _figures.decode(body)
    except msgspec.ValidationError as error:
        raise _unknown(body) from error
    if found.format not in _READABLE:
        raise _unknown(body)
    return found.figures


def replay(state: DeliveryState, body: bytes) -> None:
    """Apply the events of one commit."""
    try:
        commit = _commit.decode(body)
    except msgspec.ValidationError as error:
        raise _unknown(body) from error
    if commit.format not in _READABLE:
        raise _unknown(body)
    for event in commit.events:
        apply(state, event, commit.at)


def encode_state(state: DeliveryState) -> bytes:
    return _encoder.encode(
        (
            FORMAT,
            state.start,
            state.frontier,
            state.epoch,
            state.generation,
            state.last_token,
            [
                (
                    lease.token,
                    lease.owner,
                    lease.request,
                    lease.granted_ms,
                    lease.until_ms,
                    lease.suspect,
                    lease.alone,
                    lease.open.ranges,
                    pack_keys(lease.open.all_keys()),
                    lease.done,
                    lease.reissued,
                )
                for lease in state.leases.values()
            ],
            [(offset, waiting.due_ms, waiting.key) for offset, waiting in state.waiting.items()],
            list(state.skipped.items()),
            [
                (offset, history.deliveries, history.failures, _suspicion(history))
                for offset, history in state.histories.items()
            ],
            list(state.expires.items()),
            [getattr(state.counts, name) for name in _COUNTS],
            [(token, closed.owner, closed.at_ms, closed.done) for token, closed in state.closed.details.items()],
            state.first_token,
            [(number, block.closed_ms, block.pack()) for number, block in state.closed.blocks.items()],
        )
    )


def decode_state(body: bytes) -> DeliveryState:
    number, *parts = msgspec.msgpack.decode(body, strict=False)
    if number not in _READABLE:
        raise _unknown(body)
    start, frontier, epoch, generation, last_token, leases, waiting, skipped, histories, expires, counts, *rest = parts
    closed, first_token = _closed(*rest) if number > 1 else (_closed_1(*rest), last_token)
    state = DeliveryState(
        start=start,
        frontier=frontier,
        epoch=epoch,
        generation=generation,
        first_token=first_token,
        last_token=last_token,
        leases={lease[0]: (_lease if number > 1 else _lease_1)(*lease) for lease in leases},
        waiting={offset: WaitingMessage(due, key) for offset, due, key in waiting},
        skipped=dict(skipped),
        histories={offset: _history(*history) for offset, *history in histories},
        expires=dict(expires),
        counts=FinishedCounts(*counts),
        closed=closed,
    )
    index(state)
    return state


def _suspicion(history: DeliveryHistory) -> bool | int:
    """Return whether the message is a suspect: 0 instead of False if it was lost before.

    Versions that do not keep lost messages read both as False.
    """
    return 0 if history.lost and not history.suspect else history.suspect


def _history(deliveries: int, failures: int, suspicion: bool | int) -> DeliveryHistory:
    return DeliveryHistory(deliveries, failures, bool(suspicion), lost=suspicion is not False)


def _closed(details: list[Any], first_token: int, blocks: list[Any]) -> tuple[ClosedLeases, int]:
    closed = ClosedLeases(
        {token: ClosedLease(owner, at, done) for token, owner, at, done in details},
        {number: unpacked(packed, closed_ms) for number, closed_ms, packed in blocks},
    )
    return closed, first_token


def _closed_1(details: list[Any]) -> ClosedLeases:
    """Return the closed leases of format 1.

    Outcomes that the format dropped count as lost, because they may precede a seek.
    """
    closed = ClosedLeases()
    for token, owner, at, done in details:
        closed.note(token, ClosedLease(owner, at, done))
    return closed


def _lease(*fields: Any) -> Lease:
    token, owner, request, granted, until, suspect, alone, ranges, keys, done, reissued = fields
    messages = OpenMessages(ranges, unpack_keys(keys))
    return Lease(token, owner, request, granted, until, suspect, alone, messages, done, reissued)


def _lease_1(*fields: Any) -> Lease:
    """Return a lease of format 1, which has the key of each offset."""
    offsets, keys = zip(*fields[7], strict=True)
    reissued = fields[9] if len(fields) > 9 else False
    return _lease(*fields[:7], to_ranges(offsets), pack_keys(keys), fields[8], reissued)


def _unknown(body: bytes) -> UnsupportedFormat:
    number = _format.decode(body)[0]
    return UnsupportedFormat(f"Journal format {number} is unknown. Upgrade Lakelog.", format=number)
