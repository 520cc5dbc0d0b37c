"""Events: the changes of one commit to a delivery state. They are facts, so applying them involves no policy.

Each event is a small array in the journal. New fields are added at the end only, with a default. Lists of offsets are
flat (first, end) pairs, the end not included.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from msgspec import Struct


class Event(Struct, array_like=True, frozen=True):
    """Base class of all events."""


class LeaseGranted(Event, frozen=True, tag=1):
    """An owner leased messages. `keys` has a 32-bit hash for each (0: no key), or is empty if none has a key."""

    token: int
    owner: str
    request: str
    until: int
    ranges: list[int]
    keys: bytes
    suspect: bool
    alone: bool
    expires: list[int]
    """(offset, time) pairs of the messages with an expiry time."""


class FrontierMoved(Event, frozen=True, tag=2):
    """The frontier passed undelivered messages: filtered, expired, or skipped because their key is blocked."""

    frontier: int
    skipped: list[list[int]]
    """The skipped messages as (key, offset, offset, …) lists."""
    filtered: int
    expired: int
    expires: list[int]


class MessagesFinished(Event, frozen=True, tag=3):
    """The owner acked or discarded messages.

    `filtered` means that the messages repeat a value of which the group has accepted a run. Versions without this field
    count them as discarded.
    """

    token: int
    verb: int
    ranges: list[int]
    filtered: bool = False


class MessagesReturned(Event, frozen=True, tag=4):
    """Messages came back from a lease: nacked, released, or because the lease expired.

    `waits` has (offset, due, failed, suspect) for each message that blocks its key until it is redelivered. `back` has
    later messages of these keys.
    """

    token: int
    verb: int
    waits: list[int]
    back: list[int]


class MessageDied(Event, frozen=True, tag=5):
    """A message that was leased or waiting became a dead letter or was discarded."""

    token: int
    offset: int
    discarded: bool


class LeaseExtended(Event, frozen=True, tag=6):
    """A lease was extended. `alone` means that its owner now holds nothing else.

    `reissued` means that the request was repeated and got the same lease again.
    """

    token: int
    until: int
    alone: bool
    reissued: bool = False


class MessagesExpired(Event, frozen=True, tag=7):
    """Waiting or skipped messages reached their expiry time."""

    offsets: list[int]


class MessagesCut(Event, frozen=True, tag=8):
    """Messages below the offset were cut, except leased messages, by retention or by an operator."""

    log_start: int


class PositionReset(Event, frozen=True, tag=9):
    """A seek began a new position epoch. Leases and waiting messages are dropped."""

    epoch: int
    offset: int


class PositionCommitted(Event, frozen=True, tag=10):
    """A cursor group committed its position."""

    offset: int


class GenerationFenced(Event, frozen=True, tag=11):
    """A call of this generation was served. Calls of older generations are refused from now on."""

    generation: int


class ClosedLeasesDropped(Event, frozen=True, tag=12):
    """The oldest `count` closed leases were dropped. Only journals of format 1 have this event."""

    count: int


class ClosedLeasesTrimmed(Event, frozen=True, tag=13):
    """Closed leases were dropped: the details of the tokens in `details`, and the outcome blocks in `blocks`."""

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
    """Return 32-bit key hashes as bytes, or empty bytes if no message has a key."""
    return struct.pack(f"<{len(keys)}I", *keys) if any(keys) else b""


def unpack_keys(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(packed) // 4}I", packed)


def to_ranges(offsets: Sequence[int]) -> list[int]:
    """Return ascending offsets as flat (first, end) pairs."""
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
    """Yield the offsets of flat (first, end) pairs."""
    for first, end in pairs(ranges):
        yield from range(first, end)


def add_range(ranges: list[int], first: int, end: int) -> None:
    """Add a range to ascending flat (first, end) pairs that do not contain it, and join neighbours."""
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
    """Remove a range that lies within one of the ascending flat (first, end) pairs."""
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
    """Return the number of offsets."""
    return sum(ranges[1::2]) - sum(ranges[::2])
