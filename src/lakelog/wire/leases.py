"""Leases in one HTTP body: a head in JSON that describes them, and the stored payloads, which are not decoded.

The body is a fixed start (magic and the head's length), the head, and a payload for each piece, in the head's order;
the head and each payload begin at a multiple of 8. `lakelog.batches` defines the content of a payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from lakelog.errors import InvalidBatch
from lakelog.model.ranges import Range, from_ranges
from lakelog.wire.consume_shapes import AnswerResult

MEDIA_TYPE = "application/vnd.lakelog.leases"

_START = struct.Struct("<4sI")
_MAGIC = b"LKL1"
_ALIGN = 8


class PieceHead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Messages of one stored batch. `size` is the length of its payload.

    A whole payload has all `count` rows of the batch, and offset n is row n - base. A payload that is not whole has
    only a row for each of the offsets, in their order.
    """

    base: int
    count: int
    appended_us: int
    """When the batch was appended, in microseconds since 1970."""
    offsets: list[Range]
    size: int
    whole: bool = True


class LeaseHead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One lease.

    An offset that is missing in `deliveries` has 1 delivery, and one that is missing in `failures` has none.
    """

    token: int
    partition: int
    expires_ms: int
    pieces: list[PieceHead]
    suspect: bool = False
    order: list[Range] | None = None
    """The order in which to run the messages, if it is not by offset."""
    deliveries: dict[int, int] = {}
    failures: dict[int, int] = {}

    def offsets(self) -> Iterator[int]:
        """Return the offsets in the order in which to run the messages."""
        if self.order is not None:
            return from_ranges(self.order)
        return from_ranges(each for piece in self.pieces for each in piece.offsets)


class LeasesHead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The leases of a consume. `incarnation` is that of the topic, the first part of each message id."""

    incarnation: int
    leases: list[LeaseHead]
    generation: int | None = None
    answered: list[AnswerResult] | None = None
    """The outcome of each of the call's answers, in order."""
    error: dict[str, Any] | None = None
    """The error that prevented a lease of a call with answers. Messages may have been leased and released."""


_HEAD = msgspec.json.Decoder(LeasesHead)
_encode = msgspec.json.Encoder().encode


def write_leases(head: LeasesHead, payloads: Iterable[bytes | memoryview]) -> bytes:
    """Return the body. `payloads` are those of all pieces, in the head's order."""
    encoded = _encode(head)
    parts: list[bytes | memoryview] = [_START.pack(_MAGIC, len(encoded)), encoded, _padding(len(encoded))]
    for payload in payloads:
        parts += (payload, _padding(len(payload)))
    return b"".join(parts)


def read_leases(body: bytes | memoryview) -> tuple[LeasesHead, list[memoryview]]:
    """Return the head, and the payloads of all its pieces in the head's order."""
    view = memoryview(body)
    if len(view) < _START.size:
        raise InvalidBatch("The body ends inside its start.")
    magic, length = _START.unpack_from(view)
    if magic != _MAGIC:
        raise InvalidBatch("The body does not hold Lakelog leases.")
    if length > len(view) - _START.size:
        raise InvalidBatch("The body ends inside its head.")
    at = _START.size
    try:
        head = _HEAD.decode(view[at : at + length])
    except msgspec.MsgspecError as error:
        raise InvalidBatch(f"The head of the leases is malformed: {error}.") from error
    at += length + len(_padding(length))
    payloads = []
    for piece in (piece for lease in head.leases for piece in lease.pieces):
        if not 0 <= piece.size <= len(view) - at:
            raise InvalidBatch("The body ends inside a payload.")
        payloads.append(view[at : at + piece.size])
        at += piece.size + len(_padding(piece.size))
    return head, payloads


def _padding(length: int) -> bytes:
    return bytes(-length % _ALIGN)
