"""Decodes a stored payload to an Arrow batch, and a batch to Python values.

For payloads from the store only. Nothing here checks the Arrow data, and Arrow crashes the process on malformed data:
data from callers goes through `validate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakelog.batches.arrays import from_numbers, numbers
from lakelog.batches.encoding import PREFIX, filled
from lakelog.batches.schema import FETCH, FORMAT, NAMES, TIME, schema_of
from lakelog.errors import InvalidBatch, UnsupportedFormat
from lakelog.model.message import Message
from lakelog.model.times import EPOCH, MICROSECOND

Payload: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

_SINGLE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)
_FEW_BYTES = 128 << 10
"""Up to this size, decompressing in this thread is faster than using Arrow's threads on a busy machine."""


def decode(payload: Payload) -> pa.RecordBatch:
    """Return the batch of a payload, with the columns that it has."""
    buffer, mask = open_payload(payload)
    batch = buffer.slice(PREFIX.size)
    if batch.size > _FEW_BYTES:
        return pa.ipc.read_record_batch(batch, schema_of(mask))
    # Only the stream reader decompresses in this thread; the other one uses Arrow's threads for each column.
    stream = pa.py_buffer(b"".join((_schema_message(mask), batch)))
    return pa.ipc.open_stream(stream, options=_SINGLE_THREAD).read_next_batch()


def decode_all(payloads: Sequence[Payload]) -> pa.RecordBatch:
    """Return the messages of payloads with the same columns as one batch. It costs less than a batch for each."""
    if len(payloads) == 1:
        return decode(payloads[0])
    opened = [open_payload(payload) for payload in payloads]
    parts = [buffer.slice(PREFIX.size) for buffer, _ in opened]
    stream = pa.py_buffer(b"".join((_schema_message(opened[0][1]), *parts)))
    table = pa.ipc.open_stream(stream, options=_SINGLE_THREAD).read_all()
    return table.combine_chunks().to_batches()[0]


def decode_columns(payload: Payload, names: Sequence[str]) -> pa.RecordBatch | None:
    """Return the named columns that the payload has, or None if it has none. Only these are decompressed."""
    buffer, mask = open_payload(payload)
    schema = schema_of(mask)
    fields = [number for number in map(schema.get_field_index, names) if number >= 0]
    if not fields:
        return None
    stream = pa.py_buffer(b"".join((_schema_message(mask), buffer.slice(PREFIX.size))))
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
    return pa.ipc.open_stream(stream, options=options).read_next_batch()


@lru_cache(maxsize=1024)
def _schema_message(mask: int) -> bytes:
    return schema_of(mask).serialize().to_pybytes()  # type: ignore[no-any-return]


def open_payload(payload: Payload) -> tuple[pa.Buffer, int]:
    """Return the payload as a buffer, and its column mask. Raise `UnsupportedFormat` for another format."""
    buffer = pa.py_buffer(payload)
    if buffer.size <= PREFIX.size:
        raise InvalidBatch(f"A payload has more than {PREFIX.size} bytes, not {buffer.size}.")
    format_number, mask = PREFIX.unpack_from(buffer)
    if format_number != FORMAT:
        raise UnsupportedFormat(f"Batch format {format_number} is unknown. Upgrade Lakelog.", format=format_number)
    if buffer.address % 8:
        # A slice of a larger body may be misaligned, and Arrow expects aligned numbers.
        buffer = pa.py_buffer(bytes(payload))
    return buffer, mask


def columns(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """Return the columns as Python lists: bytes, text, numbers, aware times, dicts of headers; None for null."""
    return {name: _values(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def rows(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Return one tuple per message with the named columns. A column that is absent is None."""
    count, schema = batch.num_rows, batch.schema
    numbers = [schema.get_field_index(name) for name in names]
    lists = [_values(batch.column(n)) if n >= 0 else repeat(None, count) for n in numbers]
    return zip(*lists, strict=True)


def to_messages(batch: pa.RecordBatch) -> list[Message]:
    """Return the messages that `from_messages` got, without their `partition`."""
    names = [name for name in batch.schema.names if name in Message.__dataclass_fields__]
    return [Message(**dict(zip(names, row, strict=True))) for row in rows(batch, names)]


def with_positions(
    batch: pa.RecordBatch, partition: int, base_offset: int, appended_at: datetime | int | np.ndarray
) -> pa.RecordBatch:
    """Return the batch as readers get it (`schema.FETCH`). `base_offset` is the offset of its first row.

    `appended_at` is the time of all rows, or an array with the time of each one, in microseconds.
    """
    count = batch.num_rows
    if isinstance(appended_at, datetime):
        appended_at = (appended_at - EPOCH) // MICROSECOND
    positions = [
        from_numbers(np.full(count, partition, np.int32), pa.int32()),
        from_numbers(np.arange(base_offset, base_offset + count, dtype=np.int64), pa.int64()),
        from_numbers(np.full(count, appended_at, np.int64), TIME),
    ]
    return pa.RecordBatch.from_arrays(positions + filled(batch, NAMES), schema=FETCH)


def _values(array: pa.Array) -> list[Any]:
    if pa.types.is_map(array.type):
        return _headers(array)
    if pa.types.is_timestamp(array.type):
        return _times(array)
    values: list[Any] = array.to_pylist()
    return values


def _times(array: pa.Array) -> list[datetime | None]:
    # Arrow would create a scalar and look up a time zone for each value, which is 20 times slower.
    naive = numbers(array).astype("M8[us]").astype(object)
    if not array.null_count:
        return [time.replace(tzinfo=UTC) for time in naive]
    valid = array.is_valid().to_pylist()
    return [time.replace(tzinfo=UTC) if is_set else None for time, is_set in zip(naive, valid, strict=True)]


def _headers(array: pa.Array) -> list[dict[str, str] | None]:
    # Converts names and texts of all rows at once, then splits them: `to_pylist` of a map creates a scalar per entry.
    names, texts = array.keys.to_pylist(), array.items.to_pylist()
    ends = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist() if array.null_count else repeat(True)
    return [
        dict(zip(names[start:end], texts[start:end], strict=True)) if is_set else None
        for start, end, is_set in zip(ends, ends[1:], valid, strict=False)
    ]
