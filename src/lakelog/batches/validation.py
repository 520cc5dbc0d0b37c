"""Reads Arrow data from callers, or refuses it, for any bytes.

The order matters. First the metadata is read without Arrow, and the declared sizes are checked, because a few KiB can
declare gigabytes. Then Arrow reads and fully validates the data, because Arrow crashes the process when it uses
malformed data. Columns and limits are checked last.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.batches.decoding import Payload, open_payload
from lakelog.batches.encoding import PREFIX
from lakelog.batches.framing import BATCH, SCHEMA, IpcMessage, ipc_messages
from lakelog.batches.limits import check_count, check_limits
from lakelog.batches.schema import HEADERS, NAMES, PUBLIC, PUBLIC_MASK, TIME, TYPES, schema_of
from lakelog.errors import InvalidBatch, TooLarge, first_line, lack_of_memory
from lakelog.model.limits import MAX_BODY_BYTES, MAX_EXPANDED_BYTES, MAX_EXPANSION

# A tiny batch of equal messages may exceed MAX_EXPANSION and does no harm.
FREE_EXPANSION_BYTES = 64 << 10
# Each batch of a stream costs some work, even one without rows.
MAX_STREAM_BATCHES = 1_024

_ARROW_ERRORS = (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError, OSError, MemoryError)
_SINGLE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)


def validate(payload: Payload, *, max_expanded: int = MAX_EXPANDED_BYTES) -> pa.RecordBatch:
    """Return the batch of a payload from a caller. An accepted payload may be stored unchanged."""
    buffer, mask = open_payload(payload)
    _check_body_size(buffer.size)
    schema = schema_of(mask)
    if mask & ~PUBLIC_MASK:
        taken = next(name for name in schema.names if name not in PUBLIC)
        raise InvalidBatch(f"Column {taken!r} is set by the server. Send only {', '.join(PUBLIC)}.", column=taken)
    message = buffer.slice(PREFIX.size)
    found = list(ipc_messages(memoryview(message)))
    if len(found) != 1 or found[0].kind != BATCH or found[0].end != message.size:
        raise InvalidBatch("A payload is one Arrow record batch message, with nothing after it.")
    check_count(found[0].count)
    _check_expansion(found, max_expanded)
    try:
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except _ARROW_ERRORS as exc:
        raise _refused(exc) from exc
    check_limits(batch)
    return batch


def read_stream(body: Payload, *, max_expanded: int = MAX_EXPANDED_BYTES) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow IPC stream in the types of this format. A `partition` column comes last.

    Batches without rows are left out, as are columns with only nulls, except the value.
    """
    buffer = pa.py_buffer(body)
    _check_body_size(buffer.size)
    found = _stream_parts(memoryview(buffer))
    check_count(sum(part.count for part in found))
    _check_expansion(found, max_expanded)
    try:
        with pa.ipc.open_stream(buffer, options=_SINGLE_THREAD) as reader:
            _check_columns(reader.schema)
            batches = [_converted(batch) for batch in reader if batch.num_rows]
    except _ARROW_ERRORS as exc:
        raise _refused(exc) from exc
    for batch in batches:
        check_limits(batch)
    return batches


def _stream_parts(data: memoryview) -> list[IpcMessage]:
    found: list[IpcMessage] = []
    for part in ipc_messages(data):
        if (part.kind == SCHEMA) != (not found):
            raise InvalidBatch("An Arrow IPC stream has one schema, then its batches. Send one stream per body.")
        found.append(part)
        if len(found) > MAX_STREAM_BATCHES + 1:
            raise TooLarge(f"The stream has more than {MAX_STREAM_BATCHES} batches. Write fewer, larger batches.")
    if not found:
        raise InvalidBatch("The body is empty. Send an Arrow IPC stream.")
    return found


def _check_body_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise TooLarge(f"The body has {size} bytes; the limit is {MAX_BODY_BYTES}. Send smaller bodies.", size=size)


def _check_expansion(found: list[IpcMessage], max_expanded: int) -> None:
    expanded, encoded = sum(part.expanded for part in found), sum(part.encoded for part in found)
    if expanded > max_expanded:
        raise TooLarge(f"The decompressed body has {expanded} bytes; the limit is {max_expanded}.", size=expanded)
    if expanded > max(FREE_EXPANSION_BYTES, MAX_EXPANSION * encoded):
        raise TooLarge(
            f"The body expands from {encoded} to {expanded} bytes; the limit is a factor of {MAX_EXPANSION}. "
            "Send it with less compression.",
            size=expanded,
        )


def _check_columns(schema: pa.Schema) -> None:
    seen: set[str] = set()
    for field in schema:
        accepts = _ACCEPTED.get(field.name)
        if accepts is None:
            reason = "is set by the server" if field.name in NAMES else "is not known"
            raise InvalidBatch(
                f"Column {field.name[:120]!r} {reason}; send only {', '.join(_ACCEPTED)}.", column=field.name[:120]
            )
        if field.name in seen:
            raise InvalidBatch(f"Column {field.name!r} occurs twice.", column=field.name)
        seen.add(field.name)
        described, fits = accepts
        if b"ARROW:extension:name" in (field.metadata or {}) or not fits(field.type):
            raise InvalidBatch(
                f"Column {field.name!r} is {str(field.type)[:120]}; send it as {described}.", column=field.name
            )
    if "value" not in seen:
        raise InvalidBatch("The required column 'value' is missing.", column="value")


def _converted(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)
    fields, arrays = [], []
    for name, wanted in _CONVERTED.items():
        number = batch.schema.get_field_index(name)
        if number < 0:
            continue
        array = batch.column(number)
        if array.type != wanted:
            array = pc.cast(array, options=pc.CastOptions(wanted, allow_time_truncate=True))
        if name == "value" or array.null_count < len(array):
            fields.append(pa.field(name, wanted))
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())


def _is_headers(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _refused(exc: BaseException) -> InvalidBatch | MemoryError:
    why = first_line(exc).rstrip(".")
    return lack_of_memory(exc) or InvalidBatch(
        f"The Arrow data cannot be read: {why}. Send the unchanged output of an Arrow IPC stream writer."
    )


_Accepted = tuple[str, Callable[[pa.DataType], bool]]
_TEXT: _Accepted = ("binary or text", _is_text)
_BY_TYPE: dict[pa.DataType, _Accepted] = {
    HEADERS: ("map<string, string>", _is_headers),
    TIME: ("a timestamp with time zone UTC", _is_time),
}
_ACCEPTED: dict[str, _Accepted] = {
    **{name: _BY_TYPE.get(TYPES[name], _TEXT) for name in PUBLIC},
    "partition": ("int32", pa.types.is_integer),
}
_CONVERTED: dict[str, pa.DataType] = {**{name: TYPES[name] for name in PUBLIC}, "partition": pa.int32()}
