"""The memory of messages in a response. A stored batch may be a hundredth of its expanded size.

Every path that reads messages uses it: fetch, consume and pushed streams. A response has at most `MAX_ANSWER_BYTES` of
messages, or a quarter of the memory budget if that is less, and at least one message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from lakelog.engine.budget import Budget
from lakelog.engine.leasing.consuming import ConsumeResult, Leased, LeasedBatch
from lakelog.model import limits

MAX_ANSWER_BYTES = limits.MAX_FETCH_BYTES
"""The largest expanded size of the messages in a response."""
_MAX_ROW_BYTES = 2 * limits.MAX_MESSAGE_BYTES
"""More than a message has with its key and headers."""

SizeOf = Callable[[LeasedBatch, int], int]
"""Returns the size of one message of a batch, by its offset."""


def answer_room(budget: Budget) -> int:
    """Return the largest size of the messages in one response."""
    return min(MAX_ANSWER_BYTES, budget.limit // 4)


def fitting_rows(batch: pa.RecordBatch, room: int) -> int:
    """Return how many messages from the first on fit; at least one."""
    for number in range(batch.num_rows):
        room -= batch.slice(number, 1).nbytes
        if room < 0:
            return max(1, number)
    return int(batch.num_rows)


def largest_size(consumed: ConsumeResult) -> int:
    """Return the largest possible size of the leased messages, decoded; known without decoding them."""
    return sum(
        min(piece.cached.size, len(piece.offsets) * _MAX_ROW_BYTES)
        for leased in consumed.leases
        for piece in leased.pieces
    )


def usual_size(consumed: ConsumeResult) -> int:
    """Return the size of the leased messages, decoded, if all messages of a batch have the same size."""
    return sum(
        piece.cached.size * len(piece.offsets) // piece.batch.count
        for leased in consumed.leases
        for piece in leased.pieces
    )


def decoded_size(piece: LeasedBatch, offset: int) -> int:
    """Return the decoded size of one message."""
    size: int = piece.decoded.slice(offset - piece.batch.base, 1).nbytes
    return size


def stored_size(piece: LeasedBatch, offset: int) -> int:
    """Return the stored size of one message, if all messages of its batch have the same size."""
    return len(piece.batch.payload) // piece.batch.count


def divide(consumed: ConsumeResult, room: int, size_of: SizeOf) -> tuple[ConsumeResult, ConsumeResult]:
    """Divide leases into those that fit into one response, at least one message, and the rest."""
    kept: list[Leased] = []
    rest: list[Leased] = []
    has_any = False
    for leased in consumed.leases:
        batches = {offset: piece for piece in leased.pieces for offset in piece.offsets}
        count = 0
        for offset in leased.offsets:
            room -= size_of(batches[offset], offset)
            if room < 0 and has_any:
                break
            has_any = True
            count += 1
        if count:
            kept.append(_part(leased, leased.offsets[:count]))
        if count < len(leased.offsets):
            rest.append(_part(leased, leased.offsets[count:]))
    return replace(consumed, leases=kept), replace(consumed, leases=rest)


def _part(leased: Leased, offsets: Sequence[int]) -> Leased:
    """Return the part of a lease with these messages."""
    if len(offsets) == len(leased.offsets):
        return leased
    wanted = set(offsets)
    pieces = [
        replace(piece, offsets=[offset for offset in piece.offsets if offset in wanted]) for piece in leased.pieces
    ]
    return replace(leased, offsets=offsets, pieces=[piece for piece in pieces if piece.offsets])
