"""Decodes stored batches to messages and tables, in bulk.

It is imported with the first messages, because Arrow loads slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import repeat
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.batches import FETCH, decode, decode_all, decode_small, rows, with_positions
from lakelog.batches.arrays import from_numbers, numbers
from lakelog.batches.encoding import PREFIX
from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.values import FetchResult
from lakelog.model.fetch import FetchedBatches, StoredBatch
from lakelog.model.ranges import from_ranges
from lakelog.model.times import EPOCH, MICROSECOND
from lakelog.wire.leases import LeaseHead, PieceHead

T = TypeVar("T")

_JOINED_BYTES = 4096
"""Batches up to this size are joined with the next one: decoding one costs more than copying it."""

_Part = tuple[pa.RecordBatch, int, Any, Any]
"""Messages with their first offset, their times and their epochs."""
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def result_of(fetched: FetchedBatches, topic: str, codec: Codec[T]) -> FetchResult[T]:
    messages: list[ReceivedMessage[T]] = []
    place = (topic, codec, fetched.incarnation, fetched.partition)
    for stored, batch, first in clipped(fetched):
        offsets = range(first, first + batch.num_rows)
        messages.extend(_messages(place, stored.appended_at, _columns_of(batch), offsets))
    return FetchResult(
        messages=messages,
        next_offset=fetched.until,
        log_start=fetched.log_start,
        high_watermark=fetched.high_watermark,
    )


def table_of(fetched: FetchedBatches) -> pa.Table:
    """Return the messages in the schema that every reader of columns gets."""
    parts = [with_positions(batch, fetched.partition, first, times) for batch, first, times, _ in _joined(fetched)]
    return pa.Table.from_batches(parts, schema=FETCH)


def clipped(fetched: FetchedBatches) -> Iterator[tuple[StoredBatch, pa.RecordBatch, int]]:
    """Yield each batch, cut to the requested offsets, with the offset of its first message."""
    for stored in fetched.batches:
        first, last = max(stored.base, fetched.start), min(stored.end, fetched.until)
        if first < last:
            yield stored, decode(stored.payload).slice(first - stored.base, last - first), first


def _joined(fetched: FetchedBatches, end: int | None = None) -> Iterator[_Part]:
    """Yield batches of the requested messages below `end`.

    Small batches are joined. A batch has one time, so history that was loaded may have a batch for each message.
    """
    until = fetched.until if end is None else min(fetched.until, end)
    for run in _runs(fetched.batches):
        try:
            parts: Iterable[_Part | None] = [_part_of(run, fetched.start, until)]
        except Exception:
            # The batches before the damaged one can be read, and the same error follows them.
            parts = (_part_of([stored], fetched.start, until) for stored in run)
        yield from (part for part in parts if part is not None)


def _part_of(run: Sequence[StoredBatch], start: int, until: int) -> _Part | None:
    """Return the messages of adjacent batches from `start` on and below `until`; None if there are none."""
    base, counts = run[0].base, [stored.count for stored in run]
    first, last = max(base, start), min(run[-1].end, until)
    if first >= last:
        return None
    kept = slice(first - base, last - base)
    times = np.array([(stored.appended_at - EPOCH) // MICROSECOND for stored in run], np.int64)
    epochs = np.array([stored.epoch for stored in run], np.int32)
    batch = decode_all([stored.payload for stored in run]).slice(first - base, last - first)
    return batch, first, np.repeat(times, counts)[kept], np.repeat(epochs, counts)[kept]


def _runs(batches: Iterable[StoredBatch]) -> Iterator[list[StoredBatch]]:
    run: list[StoredBatch] = []
    for stored in batches:
        if run and not _can_join(run[-1], stored):
            yield run
            run = []
        run.append(stored)
    if run:
        yield run


def _can_join(stored: StoredBatch, following: StoredBatch) -> bool:
    is_small = len(stored.payload) <= _JOINED_BYTES and len(following.payload) <= _JOINED_BYTES
    has_same_columns = stored.payload[: PREFIX.size] == following.payload[: PREFIX.size]
    return is_small and has_same_columns and stored.end == following.base


def leased_messages(
    topic: str, codec: Codec[T], incarnation: int, lease: LeaseHead, payloads: Iterable[bytes | memoryview]
) -> list[ReceivedMessage[T]]:
    """Return the messages of a lease, in the order in which to run them."""
    messages: list[ReceivedMessage[T]] = []
    place = (topic, codec, incarnation, lease.partition)
    for piece, payload in zip(lease.pieces, payloads, strict=True):
        offsets = list(from_ranges(piece.offsets))
        at = EPOCH + timedelta(microseconds=piece.appended_us)
        messages.extend(_messages(place, at, _picked_columns(payload, piece, offsets), offsets))
    if lease.order is None:
        return messages
    found = {message.offset: message for message in messages}
    return [found[offset] for offset in lease.offsets()]


def leased_columns(lease: LeaseHead, payloads: Iterable[bytes | memoryview]) -> pa.RecordBatch:
    """Return the messages of a lease as columns, in the order in which to run them."""
    found = pa.Table.from_batches(leased_batches(lease, payloads), schema=FETCH).combine_chunks()
    return found.to_batches()[0] if found.num_rows else FETCH.empty_table().to_batches()[0]


def leased_batches(lease: LeaseHead, payloads: Iterable[bytes | memoryview]) -> list[pa.RecordBatch]:
    """Return the messages of a lease as batches of columns, in the order in which to run them."""
    parts = []
    for piece, payload in zip(lease.pieces, payloads, strict=True):
        offsets = list(from_ranges(piece.offsets))
        part = with_positions(_picked(decode(payload), piece, offsets), lease.partition, offsets[0], piece.appended_us)
        if offsets[-1] - offsets[0] >= len(offsets):
            part = part.set_column(FETCH.get_field_index("offset"), "offset", from_numbers(offsets, pa.int64()))
        parts.append(part)
    if lease.order is None:
        return parts
    found = pa.Table.from_batches(parts, schema=FETCH).combine_chunks()
    offsets = found.column("offset").to_pylist()
    rows_by_offset = {offset: row for row, offset in enumerate(offsets)}
    ordered = found.take(from_numbers([rows_by_offset[offset] for offset in lease.offsets()], pa.int64()))
    return ordered.to_batches()  # type: ignore[no-any-return]


def messages_of(batch: pa.RecordBatch, topic: str, codec: Codec[T], incarnation: int) -> list[ReceivedMessage[T]]:
    """Return the messages of a batch with the columns partition, offset and appended_at besides those of the log."""
    partitions, offsets, times = zip(*rows(batch, ["partition", "offset", "appended_at"]), strict=True)
    return [*_built((topic, codec, incarnation, partitions), times, _columns_of(batch), offsets)]


def _picked_columns(payload: bytes | memoryview, piece: PieceHead, offsets: list[int]) -> _Columns:
    columns = decode_small(payload)
    if columns is None:
        return _columns_of(_picked(decode(payload), piece, offsets))
    if not piece.whole or len(offsets) == len(columns["value"]):
        return columns
    return {name: [column[offset - piece.base] for offset in offsets] for name, column in columns.items()}


def _picked(batch: pa.RecordBatch, piece: PieceHead, offsets: list[int]) -> pa.RecordBatch:
    if not piece.whole or len(offsets) == batch.num_rows:
        return batch
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return batch.slice(offsets[0] - piece.base, len(offsets))
    return batch.take(from_numbers([offset - piece.base for offset in offsets], pa.int64()))


_Columns = Mapping[str, Iterable[Any]]
"""The values of each column, by name: bytes, text, dicts of headers, and times as microseconds since 1970; None for
null.
"""
_Place = tuple[str, Codec[T], int, int]
"""Topic, codec, incarnation and partition."""


def _messages(
    place: _Place[T], appended_at: datetime, columns: _Columns, offsets: Iterable[int]
) -> Iterator[ReceivedMessage[T]]:
    topic, codec, incarnation, partition = place
    return _built((topic, codec, incarnation, repeat(partition)), repeat(appended_at), columns, offsets)


def _built(
    place: tuple[str, Codec[T], int, Iterable[int]],
    times: Iterable[datetime],
    columns: _Columns,
    offsets: Iterable[int],
) -> Iterator[ReceivedMessage[T]]:
    topic, codec, incarnation, partitions = place

    def column(name: str) -> Iterable[Any]:
        return columns.get(name) or repeat(None)

    return map(
        ReceivedMessage,
        repeat(topic),
        partitions,
        offsets,
        column("key"),
        column("value"),
        [each or _NO_HEADERS for each in columns["headers"]] if "headers" in columns else repeat(_NO_HEADERS),
        column("content_type"),
        column("correlation_id"),
        column("idempotency_key"),
        times,
        column("created_at"),
        column("expires_at"),
        repeat(incarnation),
        repeat(codec),
        column("lineage"),
    )


def _columns_of(batch: pa.RecordBatch) -> _Columns:
    """Return the columns of a message as Python values."""
    return {
        name: _CONVERTERS[name](column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if name in _CONVERTERS
    }


def _texts(column: pa.StringArray) -> Iterable[str | None]:
    # Content types are mostly all the same: one comparison in Arrow is much cheaper than a string for each message.
    if column.null_count == 0 and pc.all(pc.equal(column, column[0])).as_py():
        return repeat(column[0].as_py(), len(column))
    return column.to_pylist()  # type: ignore[no-any-return]


def _numbers(column: pa.Int64Array) -> Iterable[int | None]:
    return column.to_pylist() if column.null_count else numbers(column).tolist()  # type: ignore[no-any-return]


def _headers(column: pa.MapArray) -> Iterable[dict[str, str] | None]:
    return [row[0] for row in rows(pa.RecordBatch.from_arrays([column], names=["headers"]), ["headers"])]


def _times(column: pa.Array) -> Iterable[int | None]:
    return _numbers(column.cast(pa.int64()))


_CONVERTERS: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "key": pa.Array.to_pylist,
    "value": pa.Array.to_pylist,
    "headers": _headers,
    "content_type": _texts,
    "correlation_id": _texts,
    "idempotency_key": _texts,
    "lineage": _texts,
    "created_at": _times,
    "expires_at": _times,
}


_POSITIONS = 3
"""Partition, offset and time are the first columns, followed by the epoch."""
SCHEMA = pa.schema([*list(FETCH)[:_POSITIONS], pa.field("epoch", pa.int32()), *list(FETCH)[_POSITIONS:]])


def batches_of(fetched: FetchedBatches, end: int) -> Iterator[pa.RecordBatch]:
    """Return the messages from the start of the fetch to its end, but none at or above `end`."""
    for batch, first, times, epochs in _joined(fetched, end):
        placed = with_positions(batch, fetched.partition, first, times)
        columns = [*placed.columns[:_POSITIONS], from_numbers(epochs, pa.int32()), *placed.columns[_POSITIONS:]]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
