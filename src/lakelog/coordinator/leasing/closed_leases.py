"""Closed leases that are remembered so that a repeated answer is recognised.

A *detail* holds the outcome of each message of a lease. The details of as many of the newest leases as fit are kept.
One byte per lease is kept for at least a minute, because most leases end with one outcome for all of their messages.
The tokens of a partition are consecutive, so the bytes are kept in blocks. A whole block is dropped a minute after the
last of its leases was closed. A lease that is closed later starts its block again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice

BLOCK = 2048
"""Number of tokens in a block."""
CHECK_AFTER = 64
"""The number of closed leases after which old leases are searched for."""
_MIXED = 7
"""The byte of a lease whose messages had different outcomes."""
_SPARE_BYTES = 4096
"""If details exceed their limit, this many more bytes are dropped, so that the next lease does not exceed it again."""


class DeliveryOutcome(IntEnum):
    """How the delivery of a message ended."""

    ACKED = 1
    DISCARDED = 2
    NACKED = 3
    RELEASED = 4
    EXPIRED = 5
    DEAD = 6


@dataclass(slots=True)
class ClosedLease:
    """The detail of a closed lease: answered offsets, as flat ranges, by `DeliveryOutcome`."""

    owner: str
    at_ms: int
    done: dict[int, list[int]]
    size: int = field(init=False)
    """Maximum number of bytes in a snapshot."""

    def __post_init__(self) -> None:
        self.size = 24 + len(self.owner.encode()) + sum([6 + 9 * len(ranges) for ranges in self.done.values()])


@dataclass(slots=True)
class OutcomeBlock:
    """The outcomes of leases with consecutive tokens. 0 means that the lease is open or its outcome is unknown."""

    outcomes: bytearray
    closed_ms: int
    """When the last of the leases was closed."""
    _packed: bytes | None = None

    def note(self, place: int, outcome: int, at_ms: int) -> None:
        self.outcomes[place] = outcome
        self.closed_ms = max(self.closed_ms, at_ms)
        self._packed = None

    def pack(self) -> bytes:
        """Return the outcomes as stored in a snapshot. Most blocks no longer change and are packed once."""
        if self._packed is None:
            # Run-length encoding only: matches would not be shorter than the 3 bits of an outcome.
            packing = zlib.compressobj(wbits=-zlib.MAX_WBITS, strategy=zlib.Z_RLE)
            self._packed = packing.compress(self.outcomes) + packing.flush()
        return self._packed

    @property
    def size(self) -> int:
        """Return the maximum number of bytes in a snapshot."""
        return 24 + (len(self._packed) if self._packed is not None else 64 + 3 * len(self.outcomes) // 8)


def unpacked(packed: bytes, closed_ms: int) -> OutcomeBlock:
    return OutcomeBlock(bytearray(zlib.decompress(packed, wbits=-zlib.MAX_WBITS)), closed_ms, packed)


@dataclass(slots=True)
class ClosedLeases:
    """Details by token, in the order of closing, and blocks by number, in the order of creation."""

    details: dict[int, ClosedLease] = field(default_factory=dict)
    blocks: dict[int, OutcomeBlock] = field(default_factory=dict)
    _unchecked: int = 0
    """Number of leases closed since the last call of `old`."""
    _detail_bytes: int = 0
    _block_bytes: int = 0
    """Maximum sizes in a snapshot."""

    def note(self, token: int, closed: ClosedLease) -> None:
        """Add a lease that was just closed."""
        self.details[token] = closed
        self._detail_bytes += closed.size
        self._unchecked += 1
        number, place = divmod(token, BLOCK)
        block = self.blocks.get(number)
        if block is None:
            block = self.blocks[number] = OutcomeBlock(bytearray(BLOCK), closed.at_ms)
            self._block_bytes += block.size
        self._block_bytes -= block.size
        block.note(place, _MIXED if len(closed.done) > 1 else next(iter(closed.done)), closed.at_ms)
        self._block_bytes += block.size

    def outcome(self, token: int) -> DeliveryOutcome | None:
        """Return the single outcome of all messages of a lease; None if there were several or it is unknown."""
        number, place = divmod(token, BLOCK)
        block = self.blocks.get(number)
        found = block.outcomes[place] if block is not None else 0
        return DeliveryOutcome(found) if found and found != _MIXED else None

    def measure(self) -> None:
        """Compute the sizes of a state that was just decoded."""
        self._detail_bytes = sum([closed.size for closed in self.details.values()])
        self._block_bytes = sum([block.size for block in self.blocks.values()])

    # Trimming ---------------------------------------------------------------------------------------------------------

    def forget(self, tokens: Iterable[int], blocks: Iterable[int]) -> None:
        """Drop the details of these leases, and these blocks."""
        for token in tokens:
            self._detail_bytes -= self.details.pop(token).size
        for number in blocks:
            self._block_bytes -= self.blocks.pop(number).size

    def old(self, before_ms: int, most_bytes: int) -> tuple[list[int], list[int]]:
        """Return the tokens of details and the numbers of blocks to drop, usually none.

        These were closed before `before_ms`, or exceed `most_bytes` of a snapshot.
        """
        is_large = self._detail_bytes + self._block_bytes > most_bytes
        if self._unchecked < CHECK_AFTER and not is_large:
            return [], []
        self._unchecked = 0
        if is_large:
            for block in self.blocks.values():
                block.pack()
        blocks = [number for number, block in self.blocks.items() if block.closed_ms < before_ms]
        young = {number: block.size for number, block in self.blocks.items() if number not in blocks}
        self._block_bytes = sum([block.size for block in self.blocks.values()])
        room = most_bytes - sum(young.values())
        for number, size in young.items():
            if room >= 0:
                break
            blocks.append(number)
            room += size
        return self._old_details(before_ms, room), blocks

    def _old_details(self, before_ms: int, room: int) -> list[int]:
        found: list[int] = []
        size = self._detail_bytes
        for token, closed in self.details.items():
            if closed.at_ms >= before_ms:
                break
            found.append(token)
            size -= closed.size
        if size > room:
            young = list(islice(self.details.items(), len(found), None))
            # Leases with a single outcome first: their block still remembers it.
            for is_mixed in (False, True):
                for token, closed in young:
                    if size <= room - _SPARE_BYTES:
                        break
                    if (len(closed.done) > 1) == is_mixed:
                        found.append(token)
                        size -= closed.size
        return found
