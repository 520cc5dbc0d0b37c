"""A group's progress as bytes: the events of one commit, or a whole state, each behind a format number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lakelog.coordinator.leasing.applying import apply, index
from lakelog.coordinator.leasing.events import AnyEvent
from lakelog.coordinator.leasing.state import Closed, Counts, Lease, State, Tally, Waiting
from lakelog.errors import UnsupportedFormat

FORMAT = 1

_encoder = msgspec.msgpack.Encoder()
_events = msgspec.msgpack.Decoder(tuple[int, int, list[AnyEvent]])
_format = msgspec.msgpack.Decoder(list[Any])
_COUNTS = ("acked", "dead", "discarded", "filtered", "expired", "cut")


def encode_events(events: Sequence[AnyEvent], at: int) -> bytes:
    return _encoder.encode((FORMAT, at, events))


def replay(state: State, body: bytes) -> None:
    """Applies the events of one commit."""
    try:
        number, at, found = _events.decode(body)
    except msgspec.ValidationError as error:
        raise _unknown(body) from error
    if number != FORMAT:
        raise _unknown(body)
    for event in found:
        apply(state, event, at)


def encode_state(state: State) -> bytes:
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
                    list(lease.open.items()),
                    lease.done,
                    lease.told_again,
                )
                for lease in state.leases.values()
            ],
            [(offset, waiting.due_ms, waiting.key) for offset, waiting in state.waiting.items()],
            list(state.skipped.items()),
            [(offset, tally.deliveries, tally.failures, tally.suspect) for offset, tally in state.tallies.items()],
            list(state.expires.items()),
            [getattr(state.counts, name) for name in _COUNTS],
            [(token, closed.owner, closed.at_ms, closed.done) for token, closed in state.closed.items()],
        )
    )


def decode_state(body: bytes) -> State:
    parts = msgspec.msgpack.decode(body, strict=False)
    if parts[0] != FORMAT:
        raise _unknown(body)
    _, start, frontier, epoch, generation, last_token, leases, waiting, skipped, tallies, expires, counts, closed = (
        parts
    )
    state = State(
        start=start,
        frontier=frontier,
        epoch=epoch,
        generation=generation,
        last_token=last_token,
        leases={lease[0]: _lease(*lease) for lease in leases},
        waiting={offset: Waiting(due, key) for offset, due, key in waiting},
        skipped=dict(skipped),
        tallies={offset: Tally(*tally) for offset, *tally in tallies},
        expires=dict(expires),
        counts=Counts(*counts),
        closed={token: Closed(owner, at, done) for token, owner, at, done in closed},
    )
    index(state)
    return state


def _lease(*fields: Any) -> Lease:
    return Lease(*fields[:7], dict(fields[7]), *fields[8:])  # type: ignore[call-arg]  # a slice has no length to check


def _unknown(body: bytes) -> UnsupportedFormat:
    number = _format.decode(body)[0]
    return UnsupportedFormat(f"Journal format {number} is not known; upgrade Lakelog.", format=number)
