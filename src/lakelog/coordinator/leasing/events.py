"""Events: what one commit changed in a group's progress. Facts, so that applying them asks for no policy.

Each is a small array in the journal; a field is only ever added at the end, with a default. Lists of offsets are flat
(first, end) pairs, the end not included.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from msgspec import Struct


class Event(Struct, array_like=True, frozen=True):
    """The base of all."""


class LeaseGranted(Event, frozen=True, tag=1):
    """An owner got these messages. `keys` has a 32-bit hash (0: none) for each, or is empty if none has a key."""

    token: int
    owner: str
    request: str
    until: int
    ranges: list[int]
    keys: bytes
    suspect: bool
    alone: bool
    expires: list[int]
    """(offset, time) pairs of those that expire."""


class FrontierMoved(Event, frozen=True, tag=2):
    """The frontier moved over messages that nobody got: filtered, expired, or skipped because their key is blocked."""

    frontier: int
    skipped: list[list[int]]
    """(key, offset, offset, …) lists."""
    filtered: int
    expired: int
    expires: list[int]


class MessagesFinished(Event, frozen=True, tag=3):
    """The owner is done with these: acked, or discarded."""

    token: int
    verb: int
    ranges: list[int]


class MessagesReturned(Event, frozen=True, tag=4):
    """Messages came back from a lease: nacked, released, or because the lease is over.

    `waits` are (offset, due, failed, suspect) fours: those that block their key until they are tried again. `back` are
    later messages of such keys.
    """

    token: int
    verb: int
    waits: list[int]
    back: list[int]


class MessageDied(Event, frozen=True, tag=5):
    """A message, open in the lease or waiting, was given up."""

    token: int
    offset: int
    discarded: bool


class LeaseExtended(Event, frozen=True, tag=6):
    """The lease runs longer. `alone`: from now on its owner has nothing else in hand.

    `reissued`: the request that got it was repeated, and answered with it once more.
    """

    token: int
    until: int
    alone: bool
    reissued: bool = False


class MessagesExpired(Event, frozen=True, tag=7):
    """Messages that waited or were skipped expired meanwhile."""

    offsets: list[int]


class MessagesCut(Event, frozen=True, tag=8):
    """Messages below the offset are cut unless they are leased: retention took them, or an operator skipped them."""

    log_start: int


class PositionReset(Event, frozen=True, tag=9):
    """A new position epoch: everything open is closed, everything waiting is forgotten."""

    epoch: int
    offset: int


class PositionCommitted(Event, frozen=True, tag=10):
    """A cursor group's position."""

    offset: int


class GenerationFenced(Event, frozen=True, tag=11):
    """A call of this generation was served: older ones are refused from now on."""

    generation: int


class ClosedLeasesDropped(Event, frozen=True, tag=12):
    """The outcomes of the oldest so many closed leases are no longer remembered. Only journals of format 1 have it."""

    count: int


class ClosedLeasesTrimmed(Event, frozen=True, tag=13):
    """Of closed leases some is no longer remembered.

    `details` are tokens: what became of each of their messages. `blocks` are numbers of blocks of outcomes.
    """

    details: list[int]
    blocks: list[int]


AnyEvent = (
    LeaseGranted
    | FrontierMoved
    | MessagesFinished
    | MessagesReturned
    | MessageDied
    | LeaseExtended
    | MessagesExpired
    | MessagesCut
    | PositionReset
    | PositionCommitted
    | GenerationFenced
    | ClosedLeasesDropped
    | ClosedLeasesTrimmed
)


def pack_keys(keys: Sequence[int]) -> bytes:
    """32-bit hashes of keys as bytes; empty if no message has a key."""
    return struct.pack(f"<{len(keys)}I", *keys) if any(keys) else b""


def unpack_keys(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(packed) // 4}I", packed)


def to_ranges(offsets: Sequence[int]) -> list[int]:
    """Ascending offsets as flat (first, end) pairs."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return [offsets[0], offsets[-1] + 1]
    ranges: list[int] = []
    for offset in offsets:
        if ranges and ranges[-1] == offset:
            ranges[-1] = offset + 1
        else:
            ranges += (offset, offset + 1)
    return ranges


def pairs(ranges: list[int]) -> Iterator[tuple[int, int]]:
    return zip(ranges[::2], ranges[1::2], strict=True)


def of_ranges(ranges: list[int]) -> Iterator[int]:
    """The offsets of flat (first, end) pairs."""
    for first, end in pairs(ranges):
        yield from range(first, end)


def add_range(ranges: list[int], first: int, end: int) -> None:
    """Adds a range that is not in ascending flat (first, end) pairs yet, and joins neighbours."""
    at = bisect_left(ranges, end)
    joins_left = at > 0 and ranges[at - 1] == first
    joins_right = at < len(ranges) and ranges[at] == end
    if joins_left and joins_right:
        del ranges[at - 1 : at + 1]
    elif joins_left:
        ranges[at - 1] = end
    elif joins_right:
        ranges[at] = first
    else:
        ranges[at:at] = (first, end)


def cut_range(ranges: list[int], first: int, end: int) -> None:
    """Removes a range that lies whole in one of ascending flat (first, end) pairs."""
    at = bisect_left(ranges, end) - 1
    if ranges[at] == first and ranges[at + 1] == end:
        del ranges[at : at + 2]
    elif ranges[at] == first:
        ranges[at] = end
    elif ranges[at + 1] == end:
        ranges[at + 1] = first
    else:
        ranges[at + 1 : at + 1] = (first, end)


def in_ranges(ranges: list[int], offset: int) -> bool:
    return bisect_left(ranges, offset + 1) % 2 == 1


def size(ranges: list[int]) -> int:
    """How many offsets they are."""
    return sum(ranges[1::2]) - sum(ranges[::2])
