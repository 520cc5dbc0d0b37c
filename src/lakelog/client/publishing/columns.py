"""Splits buffered columns into numbered batches per partition: the client's half of a bulk publish, without any I/O.

The client chooses the partitions, for the whole batch at once, so that servers store payloads without decoding them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.batches import PUBLIC, check_limits, concat, encode, from_columns, from_messages, partitions_of, split
from lakelog.batches.arrays import filled_numbers, from_list, from_numbers, repeated_text
from lakelog.batches.encoding import PREFIX
from lakelog.batches.schema import FORMAT, HEADERS, TIME, mask_of
from lakelog.batches.validation import FREE_EXPANSION_BYTES
from lakelog.client.publishing.codec import check_partition
from lakelog.client.publishing.partition_choice import MAX_BATCH_BYTES, MESSAGE_OVERHEAD, KeylessPartitioner
from lakelog.client.publishing.producer_settings import Extras
from lakelog.client.retrying import RetryRule
from lakelog.client.tracing import TracedPublish, with_context
from lakelog.errors import InvalidBatch, InvalidRequest, LakelogError, SchemaViolation
from lakelog.model.limits import MAX_BATCH_MESSAGES, MAX_EXPANSION
from lakelog.model.message import Message, message_id
from lakelog.model.position import Receipt
from lakelog.model.topic_info import TopicInfo

_NO_PARTITION = -1
SENT = frozenset({*PUBLIC, "partition"} - {"idempotency_key"})
"""The columns that callers may send."""

Partitions = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RareFields:
    """Fields that only some messages have, with the index of the message in its batch."""

    index: int
    headers: Mapping[str, str] | None
    correlation_id: str | None
    expires_at: datetime | None
    partition: int | None


class ColumnBuffer:
    """Messages before they are encoded, in plain lists, so that adding one is cheap. It is not thread-safe."""

    __slots__ = ("content_types", "extras", "keys", "opened_at", "size", "spans", "values")

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.content_types: list[str | None] = []
        self.extras: list[RareFields] = []
        self.spans: list[TracedPublish] = []
        """The span of each message, if the producer traces them."""
        self.size = 0
        self.opened_at = 0.0

    def __len__(self) -> int:
        return len(self.values)

    def trace(self, span: TracedPublish, extra: Extras | None) -> Extras:
        """Keep the span of the message that is added. Return its rare fields with the trace context."""
        self.spans.append(span)
        headers, correlation_id, expires_at, partition = extra or (None, None, None, None)
        return with_context(headers, span.context), correlation_id, expires_at, partition

    def batch(self) -> PublishRows:
        count = len(self.values)
        columns: dict[str, Any] = {
            "value": self.values,
            "created_at": from_numbers(np.full(count, int(self.opened_at * 1e6), np.int64), TIME),
        }
        if self.keys.count(None) != count:
            columns["key"] = self.keys
        first = self.content_types[0]
        if self.content_types.count(first) != count:
            columns["content_type"] = self.content_types
        elif first is not None:
            columns["content_type"] = repeated_text(first, count)
        chosen = self._add_extras(columns, count) if self.extras else None
        return PublishRows(batch=from_columns(columns), chosen=chosen)

    def messages(self) -> list[Message]:
        """Return the messages, for the report that they were not published."""
        rare = {extra.index: extra for extra in self.extras}
        return [
            Message(
                value=value,
                key=key,
                content_type=content_type,
                headers=rare[index].headers if index in rare else None,
                correlation_id=rare[index].correlation_id if index in rare else None,
                expires_at=rare[index].expires_at if index in rare else None,
                partition=rare[index].partition if index in rare else None,
            )
            for index, (value, key, content_type) in enumerate(
                zip(self.values, self.keys, self.content_types, strict=True)
            )
        ]

    def _add_extras(self, columns: dict[str, Any], count: int) -> Partitions | None:
        for name in ("headers", "correlation_id", "expires_at"):
            column: list[Any] = [None] * count
            for extra in self.extras:
                column[extra.index] = getattr(extra, name)
            columns[name] = column
        if all(extra.partition is None for extra in self.extras):
            return None
        chosen = np.full(count, _NO_PARTITION, np.int32)
        for extra in self.extras:
            if extra.partition is not None:
                chosen[extra.index] = extra.partition
        return chosen


@dataclass(slots=True)
class SealedBatch:
    """A batch of a producer on its way to the sender."""

    columns: ColumnBuffer
    parts: list[PartitionBatch]
    incarnation: int = 0
    error: LakelogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRows:
    """A batch, and the partitions that the caller chose for its messages, if any (-1: not chosen)."""

    batch: pa.RecordBatch
    chosen: Partitions | None = None


@dataclass(slots=True, eq=False)
class PartitionBatch:
    """The part of a request for one partition, and its result."""

    partition: int
    epoch: int
    rows: PublishRows
    positions: npt.NDArray[np.int64] | None
    """The indexes of these messages in the whole request; None means all messages."""
    payload: bytes
    number: tuple[bytes, int] | None = None
    rule: RetryRule = field(default_factory=RetryRule)
    """True after an attempt that may have been written. The partition, the number and the bytes must then stay the
    same.
    """
    result: int | LakelogError | None = None
    """The offset of the first message, or the reason why the part is not published."""

    @property
    def count(self) -> int:
        return self.rows.batch.num_rows  # type: ignore[no-any-return]

    def messages_at(self) -> Sequence[int]:
        return range(self.count) if self.positions is None else self.positions.tolist()


def parts_of(rows: PublishRows, topic: TopicInfo, partitioner: KeylessPartitioner) -> list[PartitionBatch]:
    """Return one encoded part per partition. Each part keeps the order of the messages."""
    batch = rows.batch
    partitions = choose_partitions(rows, topic.partitions, partitioner)
    lowest, highest = int(partitions.min()), int(partitions.max())
    if lowest == highest:
        return [_part(lowest, topic.epoch, rows, None)]
    parts = []
    for partition, part in split(batch, partitions, max(topic.partitions, highest + 1)):
        positions = np.flatnonzero(partitions == partition)
        chosen = None if rows.chosen is None else rows.chosen[positions]
        parts.append(_part(partition, topic.epoch, PublishRows(batch=part, chosen=chosen), positions))
    return parts


def results_of(parts: Sequence[PartitionBatch], incarnation: int) -> list[Receipt | LakelogError]:
    """Return the result of each message of a request, in the order of the messages."""
    results: dict[int, Receipt | LakelogError] = {}
    for part in parts:
        if isinstance(part.result, SchemaViolation):
            part.result = part.result.moved(part.messages_at())
        for place, index in enumerate(part.messages_at()):
            if isinstance(part.result, int):
                offset = part.result + place
                mark = message_id(incarnation, part.partition, offset)
                results[index] = Receipt(id=mark, partition=part.partition, offset=offset)
            else:
                results[index] = part.result or LakelogError()
    return [results[index] for index in sorted(results)]


def moved(parts: Sequence[PartitionBatch], topic: TopicInfo, partitioner: KeylessPartitioner) -> list[PartitionBatch]:
    """Choose the partitions of these parts again. None of the parts was written."""
    batch = concat([part.rows.batch for part in parts])
    chosen = None
    if any(part.rows.chosen is not None for part in parts):
        chosen = np.concatenate(
            [
                np.full(part.count, _NO_PARTITION, np.int32) if part.rows.chosen is None else part.rows.chosen
                for part in parts
            ]
        )
    places = np.concatenate([np.asarray(part.messages_at(), np.int64) for part in parts])
    again = parts_of(PublishRows(batch=batch, chosen=chosen), topic, partitioner)
    for part in again:
        part.positions = places if part.positions is None else places[part.positions]
    return again


def rows_of_messages(messages: Sequence[Message]) -> PublishRows:
    chosen = None
    if any(message.partition is not None for message in messages):
        named = [_NO_PARTITION if message.partition is None else message.partition for message in messages]
        chosen = np.array(named, np.int32)
    return PublishRows(batch=from_messages(messages), chosen=chosen)


def check_table(table: pa.Table | pa.RecordBatch) -> pa.Table:
    """Return the table that a caller publishes. Raise if it is no table, or has columns that cannot be published."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise InvalidRequest(
            f"publish_columns takes a pyarrow.Table or RecordBatch, not {type(table).__name__}. "
            "Convert it with pyarrow.Table.from_pylist or from_pandas, or publish values with publish_many."
        )
    unknown = [name for name in table.schema.names if name not in SENT]
    if unknown:
        raise InvalidBatch(
            f"Column {unknown[0]!r} cannot be published; send {', '.join(sorted(SENT))}. "
            "Idempotency keys go with `publish_many`.",
            column=unknown[0],
        )
    return table


def with_headers(table: pa.Table, change: Callable[[Mapping[str, str] | None], Mapping[str, str] | None]) -> pa.Table:
    """Return the table with changed headers."""
    place = table.schema.get_field_index("headers")
    if place < 0:
        # The same headers in each row: built once, and repeated by Arrow.
        one = from_list([change(None)], HEADERS)
        return table.append_column("headers", one.take(from_numbers(np.zeros(table.num_rows, np.int32), pa.int32())))
    try:
        given = table.column(place).cast(HEADERS).to_pylist(maps_as_pydicts="strict")
        changed = from_list([change(headers) for headers in given], HEADERS)
    except (pa.ArrowException, ValueError, TypeError, KeyError):
        # Not headers, or a name twice in a row: refused with a reason when the rows are encoded.
        return table
    return table.set_column(place, "headers", changed)


def rows_of_table(table: pa.Table) -> Iterator[PublishRows]:
    """Split a table into parts that fit into one request each."""
    if table.num_rows == 0:
        return
    size = max(1, table.nbytes // table.num_rows + MESSAGE_OVERHEAD // 4)
    step = max(1, min(MAX_BATCH_MESSAGES, MAX_BATCH_BYTES // size))
    for start in range(0, table.num_rows, step):
        yield from _fitting(table.slice(start, step))


def _fitting(part: pa.Table) -> Iterator[PublishRows]:
    if part.nbytes > MAX_BATCH_BYTES and part.num_rows > 1:
        half = part.num_rows // 2
        yield from _fitting(part.slice(0, half))
        yield from _fitting(part.slice(half))
        return
    rows = rows_of_part(part)
    check_limits(rows.batch)
    yield rows


def rows_of_part(part: pa.Table) -> PublishRows:
    """Return the rows of a table with columns of `SENT`. Rows without `created_at` are created now."""
    columns = {name: part.column(name) for name in part.schema.names if name != "partition"}
    if "created_at" not in columns:
        columns["created_at"] = from_numbers(np.full(part.num_rows, int(time.time() * 1e6), np.int64), TIME)
    chosen = None
    if "partition" in part.schema.names:
        named = part.column("partition").cast(pa.int32()).combine_chunks()
        # Null means that no partition is named. -1 is refused, although `chosen` means the same by it.
        for edge in pc.min_max(named).as_py().values():
            check_partition(edge)
        chosen = filled_numbers(named, _NO_PARTITION)
    return PublishRows(batch=from_columns(columns), chosen=chosen)


def choose_partitions(rows: PublishRows, count: int, partitioner: KeylessPartitioner) -> Partitions:
    """Return the partition of each row: the one that the row names, the one of its key, or the next one in turn."""
    batch = rows.batch
    if count == 1 and rows.chosen is None:
        return np.zeros(batch.num_rows, np.int32)
    number = batch.schema.get_field_index("key")
    if number < 0:
        partitions = np.full(batch.num_rows, _NO_PARTITION, np.int32)
    else:
        partitions = partitions_of(batch.column(number), count)
    if rows.chosen is not None:
        partitions = np.where(rows.chosen >= 0, rows.chosen, partitions).astype(np.int32)
    keyless = np.flatnonzero(partitions < 0)
    if len(keyless):
        partitions[keyless] = partitioner.many(len(keyless), count)
    return partitions


def _part(partition: int, epoch: int, rows: PublishRows, positions: npt.NDArray[np.int64] | None) -> PartitionBatch:
    return PartitionBatch(partition, epoch, rows, positions, encoded(rows.batch))


def encoded(batch: pa.RecordBatch) -> bytes:
    """Return the payload in a form that servers accept."""
    payload = encode(batch)
    if batch.nbytes > max(FREE_EXPANSION_BYTES, len(payload) * MAX_EXPANSION // 2):
        # Servers refuse payloads that expand more than MAX_EXPANSION times. Equal messages do, so they are not
        # compressed.
        return b"".join((PREFIX.pack(FORMAT, mask_of(tuple(batch.schema.names))), batch.serialize()))
    return payload
