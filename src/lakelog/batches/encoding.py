"""Encodes Python messages or columns to an Arrow batch, and a batch to the payload that is stored.

A payload is `<II` (format number, column mask) and one Arrow IPC record batch message without its schema. Columns with
only nulls are left out, so that a single small message stays small. The prefix has 8 bytes because Arrow copies
metadata that does not begin at a multiple of 8.

Limits are not checked here: data from callers goes through `validate` first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

import pyarrow as pa

from lakelog.batches.arrays import from_list
from lakelog.batches.schema import BITS, COLUMNS, FORMAT, HEADERS, NAMES, TIME, TYPES, mask_of, schema_of
from lakelog.batches.small import encode_small
from lakelog.errors import InvalidBatch, first_line, lack_of_memory
from lakelog.model.message import Message

PREFIX = struct.Struct("<II")

# Below this size, zstd costs more time than the saved bytes are worth.
COMPRESS_FROM = 50

_COMPRESSED = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1), use_threads=False)
_LENGTHS = struct.Struct("<ii")
_VALUE = BITS["value"]
_BINARY, _STRING = pa.binary(), pa.string()
_from_buffers = pa.Array.from_buffers
_buffer = pa.py_buffer

Column: TypeAlias = Sequence[Any] | pa.Array | pa.ChunkedArray


def from_messages(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return the messages as a batch of the columns that they use. Ignores `partition`, which the caller handles."""
    if not messages:
        raise InvalidBatch("A batch has at least one message.")
    try:
        if len(messages) == 1:
            return _from_one(messages[0])
        fields = ((name, list(map(get, messages))) for name, get in _GETTERS.items())
        return _assemble((name, field) for name, field in fields if name == "value" or any_set(field))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as exc:
        raise lack_of_memory(exc) or InvalidBatch(
            f"These messages cannot be stored: {first_line(exc).rstrip('.')}."
        ) from exc


def encode_messages(messages: Sequence[Message]) -> bytes:
    """Return the payload of the messages."""
    return encode_small(messages) or encode(from_messages(messages))


def from_columns(columns: Mapping[str, Column]) -> pa.RecordBatch:
    """Return a batch of lists or Arrow arrays by column name. `value` is required; headers are mappings."""
    unknown = next((name for name in columns if name not in BITS), None)
    if unknown is not None or "value" not in columns:
        wrong = "Column 'value' is missing" if unknown is None else f"There is no column {unknown!r}"
        raise InvalidBatch(f"{wrong}; the columns are {', '.join(NAMES)}.", column=unknown or "value")
    try:
        return _assemble((name, columns[name]) for name in NAMES if name in columns)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as exc:
        raise lack_of_memory(exc) or InvalidBatch(
            f"These columns cannot be stored: {first_line(exc).rstrip('.')}."
        ) from exc


def encode(batch: pa.RecordBatch) -> bytes:
    """Return the payload of a batch that this package created."""
    schema = batch.schema
    mask = mask_of(tuple(schema.names))
    if not schema.equals(schema_of(mask)):
        raise InvalidBatch(
            f"A batch must have the columns of this format in their order, not {', '.join(schema.names)}."
        )
    prefix = PREFIX.pack(FORMAT, mask)
    if batch.num_rows < COMPRESS_FROM:
        return b"".join((prefix, batch.serialize()))
    sink = pa.BufferOutputStream()
    pa.ipc.RecordBatchStreamWriter(sink, schema, options=_COMPRESSED).write_batch(batch)
    stream = sink.getvalue()
    # Only the stream writer can compress. Its first message is the schema, which has no body and is cut off.
    (metadata_length,) = struct.unpack_from("<i", stream, 4)
    return b"".join((prefix, stream.slice(8 + metadata_length)))


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return one batch of all messages, in order. Columns that a batch lacks are filled with nulls."""
    if len(batches) == 1:
        return batches[0]
    mask = 0
    for batch in batches:
        mask |= mask_of(tuple(batch.schema.names))
    schema = schema_of(mask)
    whole = [pa.RecordBatch.from_arrays(filled(batch, schema.names), schema=schema) for batch in batches]
    return pa.concat_batches(whole)


def filled(batch: pa.RecordBatch, names: Iterable[str]) -> list[pa.Array]:
    """Return the named columns of the batch. Columns that it lacks are null."""
    count = batch.num_rows
    present = dict(zip(batch.schema.names, batch.columns, strict=True))
    return [present[name] if name in present else _nulls(name, count) for name in names]


# A fetch needs a dozen of these per batch, mostly of a few different lengths.
@lru_cache(maxsize=256)
def _nulls(name: str, count: int) -> pa.Array:
    return pa.nulls(count, TYPES[name])


def any_set(column: Sequence[object]) -> bool:
    """Return whether any value is not None. `count` is fast, and most columns have only nulls."""
    return column.count(None) != len(column)


def _assemble(columns: Iterable[tuple[str, Column]]) -> pa.RecordBatch:
    mask, arrays, count = 0, [], None
    for name, column in columns:
        array = _array(name, column)
        if len(array) != (count := len(array) if count is None else count):
            raise ValueError(f"column {name!r} has {len(array)} rows and another {count}")
        if name == "value" or array.null_count < len(array):
            mask |= BITS[name]
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(mask))


def _array(name: str, column: Column) -> pa.Array:
    wanted = TYPES[name]
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.Array):
        try:
            return column if column.type == wanted else column.cast(wanted)
        except pa.ArrowNotImplementedError as exc:
            raise TypeError(f"column {name!r} has the type {column.type}; convert it to {wanted}") from exc
    if name == "headers":
        # No headers and empty headers are the same message, and null costs no bytes.
        column = [headers or None for headers in column]
    return from_list(column, wanted)


def _from_one(message: Message) -> pa.RecordBatch:
    """Build the batch of one message from buffers: `pa.array` alone costs 6 to 9 µs per column."""
    mask, arrays = 0, []
    for make, bit, field in zip(_MAKERS, _MAKER_BITS, _MESSAGE_FIELDS(message), strict=True):
        if field is not None and (array := make(field)) is not None:
            mask |= bit
            arrays.append(array)
        elif bit == _VALUE:
            mask |= bit
            arrays.append(pa.nulls(1, _BINARY))
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(mask))


def _one_binary(value: bytes) -> pa.Array:
    return _from_buffers(_BINARY, 1, [None, _buffer(_LENGTHS.pack(0, len(value))), _buffer(value)], 0)


def _one_string(text: str) -> pa.Array:
    value = text.encode()
    return _from_buffers(_STRING, 1, [None, _buffer(_LENGTHS.pack(0, len(value))), _buffer(value)], 0)


def _one_time(time: datetime) -> pa.Array:
    return from_list([time], TIME)


def _one_headers(headers: Mapping[str, str]) -> pa.Array | None:
    return from_list([headers], HEADERS) if headers else None


# In the order of the format, which the masks depend on.
_MESSAGE_COLUMNS = tuple(column.name for column in COLUMNS if column.name in Message.__dataclass_fields__)
_GETTERS = {name: attrgetter(name) for name in _MESSAGE_COLUMNS}
_MESSAGE_FIELDS = attrgetter(*_MESSAGE_COLUMNS)
_MAKER_OF: dict[pa.DataType, Callable[[Any], pa.Array | None]] = {
    _BINARY: _one_binary,
    _STRING: _one_string,
    TIME: _one_time,
    HEADERS: _one_headers,
}
_MAKERS = tuple(_MAKER_OF[TYPES[name]] for name in _MESSAGE_COLUMNS)
_MAKER_BITS = tuple(BITS[name] for name in _MESSAGE_COLUMNS)
