"""Reads the metadata of Arrow IPC messages without Arrow, to know their size before Arrow reads them.

For hostile input: every position is checked against the available bytes. Only lengths, counts and declared sizes are
read; Arrow checks the data in `validation`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from lakelog.errors import InvalidBatch

SCHEMA, BATCH = 1, 3

MAX_METADATA_BYTES = 64 << 10
MAX_BUFFERS = 64

_CONTINUATION = 0xFFFFFFFF
# V4 could hide the compression in custom metadata, where Arrow still reads it.
_VERSION_5 = 4
_CODECS = {0: "lz4", 1: "zstd"}

_I8, _I16, _U16 = struct.Struct("<b"), struct.Struct("<h"), struct.Struct("<H")
_I32, _U32, _I64 = struct.Struct("<i"), struct.Struct("<I"), struct.Struct("<q")
_FRAME, _BUFFER = struct.Struct("<Ii"), struct.Struct("<qq")


@dataclass(frozen=True, slots=True, kw_only=True)
class IpcMessage:
    """One message of a stream: its kind, where it ends, and for a batch its row count and declared size."""

    kind: int
    end: int
    count: int = 0
    encoded: int = 0
    expanded: int = 0


def ipc_messages(data: memoryview) -> Iterator[IpcMessage]:
    """Yield the messages in these bytes, up to the end-of-stream mark or the last byte."""
    at = 0
    while at < len(data):
        try:
            part = _part(data, at)
        except struct.error as exc:
            raise _malformed("it ends too early") from exc
        if part is None:
            return
        yield part
        at = part.end


def _part(data: memoryview, at: int) -> IpcMessage | None:
    marker, size = _FRAME.unpack_from(data, at)
    start = at + _FRAME.size
    if marker != _CONTINUATION:
        raise InvalidBatch(
            "The body is not an Arrow IPC stream. Write it with an IPC stream writer, not in the file format."
        )
    if size == 0:
        if start != len(data):
            raise _malformed("bytes follow its end")
        return None
    if not 0 < size <= min(MAX_METADATA_BYTES, len(data) - start):
        raise _malformed(
            f"the metadata length {size} is below 1, above {MAX_METADATA_BYTES} or beyond the end of the data"
        )
    return _message(data[start : start + size], data[start + size :], start + size)


def _message(metadata: memoryview, rest: memoryview, body_at: int) -> IpcMessage:
    message = _Table(metadata, _follow(metadata, 0))
    if message.number(0, _I16) != _VERSION_5:
        raise _malformed("the metadata version is not V5")
    kind, length = message.number(1, _I8), message.number(3, _I64)
    if not 0 <= length <= len(rest):
        raise _malformed(f"the body length {length} does not match the data")
    end = body_at + length
    header = message.table(2)
    if kind == SCHEMA:
        if header.number(0, _I16) != 0:
            raise _malformed("it is big-endian")
        if length:
            raise _malformed("a schema has no body")
        return IpcMessage(kind=kind, end=end)
    if kind != BATCH:
        raise InvalidBatch("The Arrow stream has dictionaries or tensors. Send plain columns.")
    count = header.number(0, _I64)
    if count < 0:
        raise _malformed(f"a batch has {count} rows")
    return IpcMessage(kind=kind, end=end, count=count, encoded=length, expanded=_expanded(header, rest[:length]))


def _expanded(batch: _Table, body: memoryview) -> int:
    """Return the declared size of all buffers after decompression, which Arrow allocates."""
    compressed = _is_compressed(batch)
    total = 0
    for offset, length in batch.buffers(2):
        if offset < 0 or length < 0 or offset + length > len(body):
            raise _malformed("a buffer is outside the body")
        if compressed and length:
            (declared,) = _I64.unpack_from(body[offset : offset + length])
            if declared < -1:
                raise _malformed(f"a buffer declares {declared} bytes")
            total += length - _I64.size if declared == -1 else declared
        else:
            total += length
    return total


def _is_compressed(batch: _Table) -> bool:
    if not batch.field(3):
        return False
    compression = batch.table(3)
    codec, method = compression.number(0, _I8), compression.number(1, _I8)
    if codec not in _CODECS or method != 0:
        raise _malformed(f"its compression is not {' or '.join(_CODECS.values())}")
    return True


class _Table:
    """A FlatBuffers table: fields by number, found through a table of their positions."""

    __slots__ = ("_at", "_data", "_places", "_size")

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._places = at - _read(_I32, data, at)
        self._size = _read(_U16, data, self._places)

    def field(self, number: int) -> int:
        """Return the position of the field, or 0 if the table does not have it."""
        slot = 4 + 2 * number
        if slot + 2 > self._size:
            return 0
        place = _read(_U16, self._data, self._places + slot)
        return self._at + place if place else 0

    def number(self, number: int, kind: struct.Struct) -> int:
        at = self.field(number)
        return _read(kind, self._data, at) if at else 0

    def table(self, number: int) -> _Table:
        at = self.field(number)
        if not at:
            raise _malformed("a part of the metadata is missing")
        return _Table(self._data, _follow(self._data, at))

    def buffers(self, number: int) -> list[tuple[int, int]]:
        """Return a list of (offset, length). A list that is too long for any batch is refused before it is read."""
        at = self.field(number)
        if not at:
            return []
        at = _follow(self._data, at)
        count = _read(_U32, self._data, at)
        if count > MAX_BUFFERS:
            raise _malformed(f"it has {count} buffers; a batch has at most {MAX_BUFFERS}")
        return [_BUFFER.unpack_from(self._data, at + 4 + _BUFFER.size * n) for n in range(count)]


def _follow(data: memoryview, at: int) -> int:
    return at + _read(_U32, data, at)


def _read(kind: struct.Struct, data: memoryview, at: int) -> int:
    # struct counts a negative position from the end.
    if at < 0:
        raise _malformed("the metadata points before its start")
    number: int = kind.unpack_from(data, at)[0]
    return number


def _malformed(why: str) -> InvalidBatch:
    return InvalidBatch(f"The Arrow data is malformed: {why}. Send it as an Arrow IPC writer wrote it.")
