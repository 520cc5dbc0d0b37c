"""Converts Python and numpy values to Arrow arrays and back, without loading pandas.

`pa.array`, `pa.scalar`, `to_numpy` and calls of `pyarrow.compute` with a Python value import pandas where it is
installed. The import takes 0.5 s of CPU time, and the first message of a worker or the first publish would wait for it.
Code that runs in clients and in the engine uses these functions instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelog.batches.schema import HEADERS, TIME
from lakelog.model.times import EPOCH, MICROSECOND

_MAX_BYTES = (1 << 31) - 1
_PAIR = HEADERS.key_field.type, HEADERS.item_field.type
_from_buffers = pa.Array.from_buffers


def numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of an array without a copy: times as microseconds, nulls as arbitrary numbers."""
    kind = _width(array.type)
    if array.null_count == len(array):
        return np.zeros(len(array), kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def from_numbers(values: npt.ArrayLike, kind: pa.DataType) -> pa.Array:
    """Return the numbers as an array without nulls. For types of times, the numbers are microseconds."""
    column = np.ascontiguousarray(values, _width(kind))
    return _from_buffers(kind, len(column), [None, pa.py_buffer(column)], 0)


def are_null(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return for each row whether it is null."""
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    first, end = array.offset, array.offset + len(array)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    nulls: npt.NDArray[np.bool_] = bits[first:end] == 0
    return nulls


def filled_numbers(array: pa.Array, missing: int) -> npt.NDArray[Any]:
    """Return a copy of the numbers with `missing` in place of nulls."""
    found = numbers(array).copy()
    found[are_null(array)] = missing
    return found


def from_list(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return bytes, texts, aware times or header mappings as an array of the given type. None becomes null."""
    missing = values.count(None)
    bits = _validity(values) if missing else None
    if kind == HEADERS:
        return _headers(values, bits)
    if kind == TIME:
        times = [0 if time is None else (time - EPOCH) // MICROSECOND for time in values]
        return _from_buffers(TIME, len(times), [bits, pa.py_buffer(np.array(times, np.int64))])
    if kind == pa.string():
        values = [None if text is None else str.encode(text) for text in values]
    elif kind != pa.binary():
        return pa.array(values, kind)
    return _binaries([value or b"" for value in values] if missing else values, kind, bits)


def repeated_text(text: str, count: int) -> pa.Array:
    """Return an array with the text in each of `count` rows."""
    raw = text.encode()
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(raw))
    return _from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(raw * count)], 0)


def _width(kind: pa.DataType) -> np.dtype[Any]:
    return np.dtype(f"i{kind.bit_width // 8}")


def _binaries(values: Sequence[bytes], kind: pa.DataType, bits: pa.Buffer | None) -> pa.Array:
    raw = b"".join(values)
    if len(raw) > _MAX_BYTES:
        raise OverflowError(f"{len(raw)} bytes in one column; a batch holds at most {_MAX_BYTES}")
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=ends[1:])
    return _from_buffers(kind, len(values), [bits, pa.py_buffer(ends), pa.py_buffer(raw)])


def _headers(values: Sequence[Mapping[str, str] | None], bits: pa.Buffer | None) -> pa.Array:
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if headers is None else len(headers) for headers in values], out=ends[1:])
    names = [name for headers in values if headers for name in headers]
    texts = [text for headers in values if headers for text in headers.values()]
    columns = [from_list(column, kind) for column, kind in zip((names, texts), _PAIR, strict=True)]
    pairs = pa.StructArray.from_arrays(columns, fields=[HEADERS.key_field, HEADERS.item_field])
    return _from_buffers(HEADERS, len(values), [bits, pa.py_buffer(ends)], children=[pairs])


def _validity(values: Sequence[object]) -> pa.Buffer:
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
