"""The content hash of messages, independent of the file format and of how they are split into batches.

Each column is one or more streams of bytes: lengths or null marks, then the bytes of the values that are not null. The
bytes of a stream depend only on the rows, so the hash accepts any batches, buffers nothing and touches no row in
Python. The hash detects damage and mix-ups. It does not protect against forgery by a writer of the store.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.segments.schema import SCHEMA

_DIGEST = 32


class ContentHash:
    """Hashes batches in order. `hexdigest` may be called at any time."""

    def __init__(self, schema: pa.Schema = SCHEMA) -> None:
        """Create the hash. `schema` has the columns of the batches, in order; a later version may have more of them."""
        self._schema = schema
        self._rows = 0
        self._columns = [_column_hash(field.type) for field in schema]

    def update(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        for column, stream in zip(batch.columns, self._columns, strict=True):
            stream.update(column)

    def hexdigest(self) -> str:
        whole = blake2b(self._rows.to_bytes(8, "little"), digest_size=_DIGEST)
        for field, stream in zip(self._schema, self._columns, strict=True):
            # An unused column adds nothing, so that columns of later versions do not change old hashes.
            if stream.used:
                whole.update(field.name.encode())
                whole.update(stream.digest())
        return whole.hexdigest()


class _Column:
    """The streams of one column. Leading nulls are only counted, because most columns have only nulls."""

    null_mark: ClassVar[bytes]

    def __init__(self) -> None:
        self.used = False
        self._marks = blake2b(digest_size=_DIGEST)
        self._nulls = 0

    def update(self, array: pa.Array) -> None:
        if array.null_count == len(array):
            self._nulls += len(array)
            return
        self.used = True
        self._hash_nulls()
        self._add(array, array.drop_null() if array.null_count else array)

    def digest(self) -> bytes:
        if self.used:
            self._hash_nulls()
        return self._marks.digest()

    def _add(self, array: pa.Array, kept: pa.Array) -> None:
        """Add the marks of all rows, and the values that are not null (`kept`)."""
        raise NotImplementedError

    def _hash_nulls(self) -> None:
        self._marks.update(self.null_mark * self._nulls)
        self._nulls = 0


class _FixedWidthColumn(_Column):
    """Hash numbers, times and bytes of fixed length: a mark per row, then the values."""

    null_mark = b"\x00"

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width
        self._values = blake2b(digest_size=_DIGEST)

    def _add(self, array: pa.Array, kept: pa.Array) -> None:
        self._marks.update(_validity(array))
        start = kept.offset * self._width
        self._values.update(memoryview(kept.buffers()[1])[start : start + len(kept) * self._width])

    def digest(self) -> bytes:
        return super().digest() + self._values.digest()


class _BinaryColumn(_Column):
    """Hash bytes and texts: a length per row, -1 for null, then all bytes."""

    null_mark = b"\xff" * 4

    def __init__(self) -> None:
        super().__init__()
        self._values = blake2b(digest_size=_DIGEST)

    def _add(self, array: pa.Array, kept: pa.Array) -> None:
        ends = _ends(kept)
        self._marks.update(_lengths(array, ends))
        buffer = kept.buffers()[2]
        if buffer is not None:
            self._values.update(memoryview(buffer)[ends[0] : ends[-1]])

    def digest(self) -> bytes:
        return super().digest() + self._values.digest()


class _MapColumn(_Column):
    """Hash headers: a count per row, -1 for null, then all names and all texts."""

    null_mark = b"\xff" * 4

    def __init__(self) -> None:
        super().__init__()
        self._keys, self._items = _BinaryColumn(), _BinaryColumn()

    def _add(self, array: pa.Array, kept: pa.Array) -> None:
        ends = _ends(kept)
        self._marks.update(_lengths(array, ends))
        start, count = int(ends[0]), int(ends[-1] - ends[0])
        self._keys.update(kept.keys.slice(start, count))
        self._items.update(kept.items.slice(start, count))

    def digest(self) -> bytes:
        return super().digest() + self._keys.digest() + self._items.digest()


def _column_hash(kind: pa.DataType) -> _Column:
    if pa.types.is_map(kind):
        return _MapColumn()
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return _BinaryColumn()
    return _FixedWidthColumn(kind.bit_width // 8)


def _validity(array: pa.Array) -> bytes:
    if not array.null_count:
        return b"\x01" * len(array)
    return pc.is_valid(array).to_numpy(zero_copy_only=False).astype(np.uint8).tobytes()  # type: ignore[no-any-return]


def _ends(kept: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(kept.buffers()[1], np.int32, count=len(kept) + 1, offset=kept.offset * 4)


def _lengths(array: pa.Array, ends: npt.NDArray[np.int32]) -> bytes:
    lengths = np.diff(ends)
    if array.null_count:
        every = np.full(len(array), -1, np.int32)
        every[pc.is_valid(array).to_numpy(zero_copy_only=False)] = lengths
        lengths = every
    return lengths.tobytes()
