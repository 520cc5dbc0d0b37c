"""Encodes and decodes small batches without Arrow: for a few messages, calls into Arrow cost more than their work.

`encode_small` writes the same bytes as `encode(from_messages(…))`, and `decode_small` reads them. Both return None for
batches that need Arrow: compressed batches, and columns or values of other types.

Except for counts and lengths, the metadata of a record batch depends only on its columns. Counts and lengths are
written into a copy of the metadata that Arrow created for one message with the same columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence, Sized
from datetime import datetime
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, NamedTuple, cast

import pyarrow as pa

from lakelog.batches.schema import BITS, COLUMNS, FORMAT, HEADERS, TIME, TYPES, schema_of
from lakelog.model.message import Message
from lakelog.model.times import EPOCH, MICROSECOND

FEW = 32
"""Maximum number of messages for which this is faster than Arrow."""

_PREFIX = struct.Struct("<II")
_HEAD_BYTES = 16
"""The prefix, Arrow's continuation mark, and the length of the metadata after it."""
_U16, _U32 = struct.Struct("<H").unpack_from, struct.Struct("<I").unpack_from
_I32, _I64 = struct.Struct("<i").unpack_from, struct.Struct("<q").unpack_from
_PADDING = [bytes(-size % 8) for size in range(8)]
_NUMBERS = [struct.Struct(f"<{count}q") for count in range(FEW + 1)]
_ENDS = [struct.Struct(f"<{count + 1}i") for count in range(FEW + 1)]
_VALUE = BITS["value"]

_NAMES = tuple(column.name for column in COLUMNS if column.name in Message.__dataclass_fields__)
_FIELDS = attrgetter(*_NAMES)


class _Places(NamedTuple):
    """Positions of the numbers of a batch in its metadata."""

    body_length: int
    rows: int
    nodes: int
    buffers: int
    is_compressed: bool


def _places(data: Any) -> _Places:
    """Find the positions in the FlatBuffers metadata, without the checks for hostile input that `framing` does."""
    message = _HEAD_BYTES + _U32(data, _HEAD_BYTES)[0]
    fields = message - _I32(data, message)[0]
    batch = message + _U16(data, fields + 8)[0]
    batch += _U32(data, batch)[0]
    body_length = message + _U16(data, fields + 10)[0]
    fields = batch - _I32(data, batch)[0]
    nodes = batch + _U16(data, fields + 6)[0]
    buffers = batch + _U16(data, fields + 8)[0]
    return _Places(
        body_length,
        batch + _U16(data, fields + 4)[0],
        nodes + _U32(data, nodes)[0] + 4,
        buffers + _U32(data, buffers)[0] + 4,
        _U16(data, fields)[0] > 10 and _U16(data, fields + 10)[0] > 0,
    )


def decoded_bytes(payload: bytes | memoryview) -> int:
    """Return the uncompressed size of the columns of a payload from the store."""
    places = _places(payload)
    spans = _spans(payload, places)
    if not places.is_compressed:
        return sum(spans[1::2])
    body = _HEAD_BYTES + _I32(payload, 12)[0]
    total = 0
    for at, size in zip(spans[::2], spans[1::2], strict=True):
        if size:
            # The data begins with its uncompressed length, or -1 if it is not compressed.
            (length,) = _I64(payload, body + at)
            total += length if length >= 0 else size - 8
    return total


def _spans(payload: bytes | memoryview, places: _Places) -> tuple[int, ...]:
    """Return the position in the body and the length of each buffer."""
    buffers = places.buffers
    return struct.unpack_from(f"<{2 * _U32(payload, buffers - 4)[0]}q", payload, buffers)


# --- messages to bytes


def encode_small(messages: Sequence[Message]) -> bytes | None:
    """Return the payload of the messages, or None if Arrow must encode them or report what is wrong with them."""
    count = len(messages)
    if not 0 < count <= FEW:
        return None
    writer, mask = _Writer(), 0
    try:
        for (write, bit), column in zip(_WRITERS, zip(*map(_FIELDS, messages), strict=True), strict=True):
            if bit == _VALUE or column.count(None) != count:
                mask |= bit if write(writer, column) else 0
        head, places = _template(mask)
        pack = struct.pack_into
        metadata = bytearray(head)
        pack("<q", metadata, places.body_length, writer.length)
        pack("<q", metadata, places.rows, count)
        pack(f"<{len(writer.nodes)}q", metadata, places.nodes, *writer.nodes)
        pack(f"<{len(writer.buffers)}q", metadata, places.buffers, *writer.buffers)
        return b"".join((metadata, *writer.parts))
    except (TypeError, ValueError, AttributeError, OverflowError, struct.error):
        return None


class _Writer:
    """Writes the body of a batch column by column, and collects the numbers for its metadata."""

    __slots__ = ("buffers", "length", "nodes", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.nodes: list[int] = []
        """The number of rows and of nulls of each column."""
        self.buffers: list[int] = []
        """The position in the body and the length of each buffer."""
        self.length = 0

    def put(self, data: bytes) -> None:
        size = len(data)
        self.buffers += (self.length, size)
        self.parts.append(data)
        if size & 7:
            self.parts.append(_PADDING[size & 7])
            size += -size & 7
        self.length += size

    def valid(self, column: Sequence[object]) -> int:
        """Write which rows are not null, unless no row is null. Return the number of nulls."""
        count, nulls = len(column), column.count(None)
        self.nodes += (count, nulls)
        if nulls:
            bits = sum(1 << row for row, each in enumerate(column) if each is not None)
            self.put(bits.to_bytes((count + 7) // 8, "little"))
        else:
            self.buffers += (self.length, 0)
        return nulls

    def ends(self, column: Sequence[Sized]) -> None:
        """Write the start of the first row and the end of each row."""
        count = len(column)
        pack = _ENDS[count].pack if count <= FEW else struct.Struct(f"<{count + 1}i").pack
        self.put(pack(*accumulate(map(len, column), initial=0)))

    def binary(self, column: Sequence[bytes | None]) -> bool:
        filled = [each or b"" for each in column] if self.valid(column) else cast(Sequence[bytes], column)
        self.ends(filled)
        self.put(b"".join(filled))
        return True

    def text(self, column: Sequence[str | None]) -> bool:
        return self.binary([None if each is None else each.encode() for each in column])

    def time(self, column: Sequence[datetime | None]) -> bool:
        self.valid(column)
        self.put(_NUMBERS[len(column)].pack(*[0 if at is None else (at - EPOCH) // MICROSECOND for at in column]))
        return True

    def headers(self, column: Sequence[Mapping[str, str] | None]) -> bool:
        if not any(column):
            # No headers and empty headers are the same message.
            return False
        self.valid([each or None for each in column])
        self.ends([each or () for each in column])
        items = [item for each in column for item in (each or {}).items()]
        self.valid(items)
        for name_or_text in (0, 1):
            self.binary([item[name_or_text].encode() for item in items])
        return True


_WRITER_OF: dict[pa.DataType, Callable[[_Writer, Any], bool]] = {
    pa.binary(): _Writer.binary,
    pa.string(): _Writer.text,
    TIME: _Writer.time,
    HEADERS: _Writer.headers,
}
_WRITERS = tuple((_WRITER_OF[TYPES[name]], BITS[name]) for name in _NAMES)


@lru_cache(maxsize=256)
def _template(mask: int) -> tuple[bytes, _Places]:
    """Return the prefix and metadata of a batch with these columns, and the positions of its numbers."""
    schema = schema_of(mask)
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, column.type) for column in schema], schema=schema)
    raw = _PREFIX.pack(FORMAT, mask) + batch.serialize().to_pybytes()
    head = raw[: _HEAD_BYTES + _I32(raw, 12)[0]]
    return head, _places(head)


# --- bytes to columns


def decode_small(payload: bytes | memoryview) -> dict[str, list[Any]] | None:
    """Return the columns of a payload from the store, or None if Arrow must read it.

    Times are microseconds since 1970, headers are dicts; null is None.
    """
    number, mask = _PREFIX.unpack_from(payload)
    readers = _readers(mask) if number == FORMAT else None
    if readers is None:
        return None
    places = _places(payload)
    (count,) = _I64(payload, places.rows)
    if places.is_compressed or count > FEW:
        return None
    reader = _Reader(payload, places)
    return {name: read(reader, count) for name, read in readers}


class _Reader:
    """Reads the body of a batch, column by column."""

    __slots__ = ("_body", "_buffer", "_data", "_places", "_spans")

    def __init__(self, payload: bytes | memoryview, places: _Places) -> None:
        self._data = payload
        self._body = _HEAD_BYTES + _I32(payload, 12)[0]
        self._spans = _spans(payload, places)
        self._buffer = 0

    def next(self) -> tuple[int, int]:
        """Return the position and the length of the next buffer."""
        at = self._buffer
        self._buffer = at + 2
        return self._body + self._spans[at], self._spans[at + 1]

    def masked(self, column: list[Any], valid: tuple[int, int]) -> list[Any]:
        start, size = valid
        if not size:
            return column
        bits = int.from_bytes(self._data[start : start + size], "little")
        return [each if bits >> row & 1 else None for row, each in enumerate(column)]

    def ends(self, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count + 1}i", self._data, self.next()[0])

    def binary(self, count: int) -> list[bytes | None]:
        valid, ends = self.next(), self.ends(count)
        at, data = self.next()[0], self._data
        found = [bytes(data[at + start : at + end]) for start, end in pairwise(ends)]
        return self.masked(found, valid)

    def text(self, count: int) -> list[str | None]:
        return [None if each is None else each.decode() for each in self.binary(count)]

    def time(self, count: int) -> list[int | None]:
        valid = self.next()
        return self.masked(list(_NUMBERS[count].unpack_from(self._data, self.next()[0])), valid)

    def headers(self, count: int) -> list[dict[str, str] | None]:
        valid, ends = self.next(), self.ends(count)
        self.next()
        names, texts = self.text(ends[-1]), self.text(ends[-1])
        found = [dict(zip(names[a:b], texts[a:b], strict=True)) for a, b in pairwise(ends)]
        return self.masked(found, valid)


_READER_OF: dict[pa.DataType, Callable[[_Reader, int], list[Any]]] = {
    pa.binary(): _Reader.binary,
    pa.string(): _Reader.text,
    TIME: _Reader.time,
    HEADERS: _Reader.headers,
}


@lru_cache(maxsize=256)
def _readers(mask: int) -> tuple[tuple[str, Callable[[_Reader, int], list[Any]]], ...] | None:
    """Return the columns of a mask and their readers; None if Arrow must read them or the mask is unknown."""
    columns = [column for number, column in enumerate(COLUMNS) if mask >> number & 1]
    if mask >> len(COLUMNS) or not all(column.type in _READER_OF for column in columns):
        return None
    return tuple((column.name, _READER_OF[column.type]) for column in columns)
