"""Messages as a reader gets them: built in bulk from stored batches, their values decoded when first looked at."""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import repeat
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.batches import FETCH, decode, rows, with_positions
from lakelog.client.codec import Codec
from lakelog.client.values import Chunk, FetchResult
from lakelog.model.message import message_id
from lakelog.wire.frames import FetchFrame
from lakelog.wire.leases import LeaseHead, PieceHead, from_ranges

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def _proxy(headers: dict[str, str]) -> MappingProxyType[str, str]:
    return MappingProxyType(headers)


# Messages go to other processes too, and Python itself does not pickle these.
copyreg.pickle(MappingProxyType, lambda proxy: (_proxy, (dict(proxy),)))


# gc=False: half a million of these a second would keep the collector busy. They hold bytes, text and a codec, which
# cannot refer back to them; only a caller who hangs a message into its own decoded value makes a cycle.
class ReceivedMessage(msgspec.Struct, Generic[T], frozen=True, gc=False, eq=False):
    """One message of the log. `value` is decoded by the topic's type or the content type; `raw` are the bytes."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    raw: bytes | None
    headers: Mapping[str, str]
    content_type: str | None
    correlation_id: str | None
    idempotency_key: str | None
    appended_at: datetime
    _created: int | None
    _expires: int | None
    _incarnation: int
    _codec: Codec[T]
    _value: Any = msgspec.UNSET

    @property
    def id(self) -> str:
        return message_id(self._incarnation, self.partition, self.offset)

    @property
    def value(self) -> T:
        if self._value is msgspec.UNSET:
            msgspec.structs.force_setattr(self, "_value", self._codec.decode(self.raw, self.content_type))
        return self._value  # type: ignore[no-any-return]

    @property
    def key_text(self) -> str | None:
        return None if self.key is None else self.key.decode(errors="replace")

    @property
    def created_at(self) -> datetime | None:
        return None if self._created is None else _EPOCH + timedelta(microseconds=self._created)

    @property
    def expires_at(self) -> datetime | None:
        return None if self._expires is None else _EPOCH + timedelta(microseconds=self._expires)

    def __repr__(self) -> str:
        size = None if self.raw is None else len(self.raw)
        return f"ReceivedMessage(id={self.id!r}, topic={self.topic!r}, key={self.key!r}, bytes={size})"


def result_of(chunk: Chunk, topic: str, codec: Codec[T]) -> FetchResult[T]:
    messages: list[ReceivedMessage[T]] = []
    for frame, batch, first in _clipped(chunk):
        offsets = range(first, first + batch.num_rows)
        place = (topic, codec, chunk.incarnation, frame.partition)
        messages.extend(_messages(place, frame.appended_at, batch, offsets))
    return FetchResult(
        messages=messages,
        next_offset=chunk.until,
        log_start=chunk.log_start,
        high_watermark=chunk.high_watermark,
    )


def table_of(chunk: Chunk) -> pa.Table:
    """The messages in the schema that every reader of columns gets."""
    parts = [
        with_positions(batch, frame.partition, first, frame.appended_at) for frame, batch, first in _clipped(chunk)
    ]
    return pa.Table.from_batches(parts, schema=FETCH)


def _clipped(chunk: Chunk) -> Iterator[tuple[FetchFrame, pa.RecordBatch, int]]:
    """Each batch cut to what was asked for, and the offset of its first message."""
    for frame in chunk.frames:
        first, end = max(frame.base, chunk.start), min(frame.base + frame.count, chunk.until)
        if first < end:
            batch = decode(frame.payload)
            yield frame, batch.slice(first - frame.base, end - first), first


def leased_messages(
    topic: str, codec: Codec[T], incarnation: int, lease: LeaseHead, payloads: Iterable[bytes | memoryview]
) -> list[ReceivedMessage[T]]:
    """The messages of a lease, in the order in which to run them."""
    messages: list[ReceivedMessage[T]] = []
    place = (topic, codec, incarnation, lease.partition)
    for piece, payload in zip(lease.pieces, payloads, strict=True):
        offsets = list(from_ranges(piece.offsets))
        at = _EPOCH + timedelta(microseconds=piece.appended_us)
        messages.extend(_messages(place, at, _picked(decode(payload), piece, offsets), offsets))
    if lease.order is None:
        return messages
    found = {message.offset: message for message in messages}
    return [found[offset] for offset in lease.offsets()]


def leased_columns(lease: LeaseHead, payloads: Iterable[bytes | memoryview]) -> pa.RecordBatch:
    """The messages of a lease in the schema that every reader of columns gets, in the order in which to run them."""
    parts = []
    for piece, payload in zip(lease.pieces, payloads, strict=True):
        offsets = list(from_ranges(piece.offsets))
        part = with_positions(_picked(decode(payload), piece, offsets), lease.partition, offsets[0], piece.appended_us)
        parts.append(part.set_column(FETCH.get_field_index("offset"), "offset", pa.array(offsets, pa.int64())))
    found = pa.Table.from_batches(parts, schema=FETCH).combine_chunks()
    if lease.order is not None:
        offsets = found.column("offset").to_pylist()
        rows_by_offset = {offset: row for row, offset in enumerate(offsets)}
        found = found.take(pa.array([rows_by_offset[offset] for offset in lease.offsets()], pa.int64()))
    return found.to_batches()[0] if found.num_rows else pa.RecordBatch.from_pylist([], schema=FETCH)


def messages_of(batch: pa.RecordBatch, topic: str, codec: Codec[T], incarnation: int) -> list[ReceivedMessage[T]]:
    """The messages of a batch that has the columns partition, offset and appended_at besides those of the log."""
    partitions, offsets, times = zip(*rows(batch, ["partition", "offset", "appended_at"]), strict=True)
    return [*_built((topic, codec, incarnation, partitions), times, batch, offsets)]


def _picked(batch: pa.RecordBatch, piece: PieceHead, offsets: list[int]) -> pa.RecordBatch:
    if not piece.whole or len(offsets) == batch.num_rows:
        return batch
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return batch.slice(offsets[0] - piece.base, len(offsets))
    return batch.take(pa.array([offset - piece.base for offset in offsets], pa.int64()))


_Place = tuple[str, Codec[T], int, int]
"""Topic, codec, incarnation and partition."""


def _messages(
    place: _Place[T], appended_at: datetime, batch: pa.RecordBatch, offsets: Iterable[int]
) -> Iterator[ReceivedMessage[T]]:
    topic, codec, incarnation, partition = place
    return _built((topic, codec, incarnation, repeat(partition)), repeat(appended_at), batch, offsets)


def _built(
    place: tuple[str, Codec[T], int, Iterable[int]],
    times: Iterable[datetime],
    batch: pa.RecordBatch,
    offsets: Iterable[int],
) -> Iterator[ReceivedMessage[T]]:
    topic, codec, incarnation, partitions = place
    count = batch.num_rows
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))

    def bare(name: str) -> Iterable[Any]:
        return columns[name].to_pylist() if name in columns else repeat(None, count)

    def text(name: str) -> Iterable[Any]:
        return _texts(columns[name]) if name in columns else repeat(None, count)

    def time(name: str) -> Iterable[Any]:
        return _numbers(columns[name].cast(pa.int64())) if name in columns else repeat(None, count)

    headers: Iterable[Any] = repeat(_NO_HEADERS, count)
    if "headers" in columns:
        headers = [row[0] or _NO_HEADERS for row in rows(batch, ["headers"])]
    return map(
        ReceivedMessage,
        repeat(topic),
        partitions,
        offsets,
        bare("key"),
        bare("value"),
        headers,
        text("content_type"),
        text("correlation_id"),
        text("idempotency_key"),
        times,
        time("created_at"),
        time("expires_at"),
        repeat(incarnation),
        repeat(codec),
    )


def _texts(array: pa.StringArray) -> Iterable[str | None]:
    # Content types are mostly all the same: one comparison in Arrow is much cheaper than a string for each message.
    if array.null_count == 0 and pc.all(pc.equal(array, array[0])).as_py():
        return repeat(array[0].as_py(), len(array))
    return array.to_pylist()  # type: ignore[no-any-return]


def _numbers(array: pa.Int64Array) -> Iterable[int | None]:
    return array.to_pylist() if array.null_count else array.to_numpy().tolist()  # type: ignore[no-any-return]
