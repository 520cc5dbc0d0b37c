"""The limits of a message, checked for a whole batch at once.

The batch must already be valid Arrow data; see `validation`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.batches.arrays import numbers
from lakelog.errors import InvalidBatch, TooLarge
from lakelog.model.limits import (
    MAX_BATCH_MESSAGES,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_KEY_BYTES,
    MAX_MESSAGE_BYTES,
)

_MAX_BYTES = {
    "key": MAX_KEY_BYTES,
    "value": MAX_MESSAGE_BYTES,
    "content_type": MAX_IDEMPOTENCY_KEY_BYTES,
    "correlation_id": MAX_IDEMPOTENCY_KEY_BYTES,
    "idempotency_key": MAX_IDEMPOTENCY_KEY_BYTES,
}
# Years 1 to 9999: a time that Python cannot represent would break every reader of the message.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999


def check_count(count: int) -> None:
    """Refuse a batch without messages or with too many."""
    if count < 1:
        raise InvalidBatch("The batch has no messages. Send at least one.")
    if count > MAX_BATCH_MESSAGES:
        raise TooLarge(
            f"The batch has {count} messages. Send at most {MAX_BATCH_MESSAGES}.", count=count, limit=MAX_BATCH_MESSAGES
        )


def check_limits(batch: pa.RecordBatch) -> None:
    """Refuse a batch in which a message exceeds a limit. The error names the column and the row."""
    check_count(batch.num_rows)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in _MAX_BYTES:
            _check_sizes(name, _offsets(column), _MAX_BYTES[name])
        elif name == "headers":
            _check_headers(column)
        elif pa.types.is_timestamp(column.type):
            _check_times(name, column)
        elif name == "partition":
            _check_partitions(column)


def _check_sizes(name: str, offsets: npt.NDArray[np.int32], limit: int) -> None:
    if int(offsets[-1]) - int(offsets[0]) <= limit:
        return
    sizes = offsets[1:] - offsets[:-1]
    if (largest := int(sizes.max())) > limit:
        row = int(sizes.argmax())
        raise TooLarge(
            f"Column {name!r} has {largest} bytes in row {row}; the limit is {limit}.",
            column=name,
            row=row,
            limit=limit,
        )


def _check_headers(headers: pa.MapArray) -> None:
    offsets, names, texts = _offsets(headers), headers.keys, headers.items
    counts = offsets[1:] - offsets[:-1]
    most = int(counts.max())
    if most > MAX_HEADERS:
        row = int(counts.argmax())
        raise TooLarge(f"Row {row} has {counts[row]} headers; the limit is {MAX_HEADERS}.", row=row, limit=MAX_HEADERS)
    if names.null_count or texts.null_count:
        raise InvalidBatch("The name or text of a header is null. Leave such headers out.", column="headers")
    _check_sizes("headers", _offsets(names), MAX_HEADER_BYTES)
    _check_sizes("headers", _offsets(texts), MAX_HEADER_BYTES)
    if most > 1:
        _check_names(names.slice(int(offsets[0]), int(offsets[-1] - offsets[0])), counts)


def _check_names(names: pa.StringArray, counts: npt.NDArray[np.int32]) -> None:
    """Refuse a header name that occurs twice in one message: readers get a mapping and would lose one text."""
    rows = np.repeat(np.arange(len(counts)), counts)
    encoded = names.dictionary_encode()
    pairs = rows * len(encoded.dictionary) + numbers(encoded.indices)
    if len(np.unique(pairs)) != len(pairs):
        raise InvalidBatch("A message has two headers with the same name. Join them into one.", column="headers")


def _check_times(name: str, column: pa.Array) -> None:
    ends = pc.min_max(column.cast(pa.int64())).as_py()
    if ends["min"] is not None and not _FIRST_TIME <= ends["min"] <= ends["max"] <= _LAST_TIME:
        raise InvalidBatch(f"Column {name!r} has a time outside the years 1 to 9999.", column=name)


def _check_partitions(column: pa.Array) -> None:
    lowest = pc.min(column).as_py()
    if lowest is not None and lowest < 0:
        raise InvalidBatch(
            "Column 'partition' has a number below 0. Use null to let the key choose.", column="partition"
        )


def _offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32, count=len(array) + 1, offset=4 * array.offset)
