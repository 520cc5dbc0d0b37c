"""Writes messages with dense offsets of one partition to a sealed Parquet file, and hashes them.

The caller uploads and registers the file.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelog.errors import InvalidBatch
from lakelog.model.columns import TopicColumns
from lakelog.model.segment import SealedSegment
from lakelog.segments.hashing import ContentHash
from lakelog.segments.schema import FORMAT, POSITIONS, SCHEMA, TYPED, conform
from lakelog.segments.typed_values import TypedValues, typed_values

# Each row group costs a bulk reader a request or two, and a reader of one message reads a whole group.
GROUP_ROWS = 128 << 10
GROUP_BYTES = 32 << 20
BLOOM_ERRORS = 0.05
"""The share of absent keys that the bloom filter does not rule out."""

FORMAT_KEY = "lakelog.format"
PARTITION_KEY = "lakelog.partition"
CONTENT_KEY = "lakelog.content_hash"
LOADED_KEY = "lakelog.loaded"
"""Present in a file that was written for a load. Only the database knows whether the load was decided."""
OPTIONAL_KEY = "lakelog.optional"
"""The columns that a reader may leave out if it does not know them, separated by commas. Format 1 has only `TYPED`."""
COLUMNS_KEY = "lakelog.columns"
"""The version of the topic's columns by which `TYPED` was filled."""

_OFFSET, _APPENDED_AT, _EPOCH = POSITIONS[1:]
_WRITER_OPTIONS = signature(pq.write_table).parameters
_HEAVY = ("key", "value", "headers")
_INCOMPLETE = "Each message of a segment must have its partition, offset, append time and epoch."
# These columns have few different values. A dictionary does not pay off for keys and values.
_DICTIONARY = [
    "partition",
    "appended_at",
    "epoch",
    "headers.key_value.key",
    "headers.key_value.value",
    "content_type",
    "producer",
    "target_group",
    "schema_id",
    "encryption_key_id",
    "origin",
]


class SegmentWriter:
    """Writes one segment: `with SegmentWriter(path, 3) as writer: writer.write(batch); sealed = writer.close()`.

    Without `close`, the file has no footer and cannot be read as a segment.
    """

    def __init__(
        self,
        sink: str | Path | BinaryIO,
        partition: int,
        *,
        is_loaded: bool = False,
        columns: TopicColumns | None = None,
    ) -> None:
        """Create a writer.

        Args:
            sink: The path of the new file, or an open file.
            partition: The partition of the messages.
            is_loaded: Note in the file that its messages were not read from the log. Default: False.
            columns: The topic's columns, by which the file gets the typed columns of values. Default: none.
        """
        self._sink = _HashingSink(sink)
        self._partition = partition
        self._is_loaded = is_loaded
        self._typed: TypedValues | None = None if columns is None else typed_values(columns)
        self._content = ContentHash()
        self._parquet: pq.ParquetWriter | None = None
        self._groups: list[int] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._first: int | None = None
        self._next = 0
        self._first_at = self._last_at = datetime.min.replace(tzinfo=UTC)
        self._epoch = 0

    @property
    def bytes(self) -> int:
        """The size of the row groups that are written so far."""
        return self._sink.bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Add messages as columns of `SCHEMA`. Positions are required; other missing columns are null."""
        if batch.num_rows == 0:
            return
        batch = conform(batch)
        self._follow(batch)
        for part, weight in _parts(batch):
            full = self._waiting_rows + part.num_rows > GROUP_ROWS or self._waiting_bytes + weight > GROUP_BYTES
            if full and self._waiting:
                self._flush()
            self._waiting.append(part)
            self._waiting_rows += part.num_rows
            self._waiting_bytes += weight

    def close(self) -> SealedSegment:
        """Finish the file. Refuse a file without messages."""
        if self._first is None:
            raise InvalidBatch("A segment must have at least one message.")
        if self._waiting:
            self._flush()
        content_hash = self._content.hexdigest()
        assert self._parquet is not None
        about = {FORMAT_KEY: str(FORMAT), PARTITION_KEY: str(self._partition), CONTENT_KEY: content_hash}
        if self._is_loaded:
            about[LOADED_KEY] = "1"
        if self._typed is not None:
            about |= {OPTIONAL_KEY: ",".join(TYPED), COLUMNS_KEY: str(self._typed.version)}
        self._parquet.add_key_value_metadata(about)
        self._parquet.close()
        self._sink.finish()
        return SealedSegment(
            partition=self._partition,
            first=self._first,
            end=self._next,
            bytes=self._sink.bytes,
            file_hash=self._sink.hash.hexdigest(),
            content_hash=content_hash,
            first_at=self._first_at,
            last_at=self._last_at,
            epoch=self._epoch,
            groups=tuple(self._groups),
        )

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._sink.finished:
            # Arrow writes a footer when its writer is deleted. It must not reach the file.
            self._sink.finish()
            if self._parquet is not None:
                self._parquet.close()

    def _follow(self, batch: pa.RecordBatch) -> None:
        """Check the ends of a batch. `_check` checks all rows when a row group is written."""
        offsets = batch.column(_OFFSET)
        start, last = offsets[0].as_py(), offsets[-1].as_py()
        if start is None or last is None:
            raise InvalidBatch(_INCOMPLETE)
        if self._first is None:
            self._first = self._next = start
            self._first_at = _appended_at(batch, 0)
        if start != self._next or last != start + batch.num_rows - 1:
            raise self._not_dense()
        self._next = last + 1
        self._last_at, self._epoch = _appended_at(batch, -1), batch.column(_EPOCH)[-1].as_py()

    def _check(self, group: pa.RecordBatch) -> None:
        positions = group.columns[: len(POSITIONS)]
        if any(column.null_count for column in positions):
            raise InvalidBatch(_INCOMPLETE)
        if not (np.diff(group.column(_OFFSET).to_numpy()) == 1).all():
            raise self._not_dense()
        if not (group.column("partition").to_numpy() == self._partition).all():
            raise InvalidBatch(
                f"A segment must have one partition. This one has partition {self._partition}.",
                partition=self._partition,
            )

    def _not_dense(self) -> InvalidBatch:
        detail = f"Offsets in a segment must have no gaps: {self._next} comes next in partition {self._partition}."
        return InvalidBatch(detail, partition=self._partition, offset=self._next)

    def _flush(self) -> None:
        group = pa.concat_batches(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self._check(group)
        self._content.update(group)
        if self._parquet is None:
            self._parquet = _parquet_writer(self._sink, group, self._typed)
        self._groups.append(group.column(_OFFSET)[0].as_py())
        if self._typed is not None:
            group = self._typed.added_to(group)
        self._parquet.write_table(pa.Table.from_batches([group]), row_group_size=GROUP_ROWS)


class _HashingSink:
    """A file that hashes and counts the bytes written to it. Parquet never seeks back."""

    def __init__(self, sink: str | Path | BinaryIO) -> None:
        self._own = isinstance(sink, str | Path)
        self._file: BinaryIO = open(sink, "xb") if isinstance(sink, str | Path) else sink  # noqa: SIM115
        self.hash = hashlib.sha256()
        self.bytes = 0
        self.closed = False
        self.finished = False

    def write(self, data: bytes) -> int:
        if self.finished:
            return len(data)
        self._file.write(data)
        self.hash.update(data)
        self.bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        if not self.finished:
            self._file.flush()

    def finish(self) -> None:
        """Ignore everything that is written from now on."""
        self.flush()
        self.finished = True
        if self._own:
            self._file.close()

    def close(self) -> None:
        self.closed = True


def _parquet_writer(sink: _HashingSink, first_group: pa.RecordBatch, typed: TypedValues | None) -> pq.ParquetWriter:
    """Return the writer. Its bloom filters have room for as many keys as the first row group has."""
    leaves = () if typed is None else typed.leaves
    bloom: dict[str, object] = {}
    keys = pc.count_distinct(first_group.column("key"), mode="only_valid").as_py()
    # Older versions of Arrow read bloom filters, and do not write any.
    if keys and "bloom_filter_options" in _WRITER_OPTIONS:
        bloom = {"bloom_filter_options": {"key": {"ndv": keys, "fpp": BLOOM_ERRORS}}}
    return pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        SCHEMA if typed is None else typed.file_schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[*_DICTIONARY, *leaves],
        column_encoding={"offset": "DELTA_BINARY_PACKED"},
        write_statistics=["partition", "offset", "appended_at", "epoch", *leaves],
        write_page_index=True,
        # A reader of a part of the file checks the pages that it reads. The hashes cover whole files.
        write_page_checksum=True,
        data_page_size=256 << 10,
        sorting_columns=[pq.SortingColumn(SCHEMA.get_field_index("offset"))],
        store_schema=False,
        **bloom,
    )


def _parts(batch: pa.RecordBatch) -> list[tuple[pa.RecordBatch, int]]:
    """Split the batch into parts of at most about a row group, each with its size in bytes."""
    count = batch.num_rows
    # Measuring all columns costs ten times as much, and the other columns are small or null.
    weight = max(1, count * 32 + sum(batch.column(name).nbytes for name in _HEAVY))
    step = max(1, min(GROUP_ROWS, count * GROUP_BYTES // weight))
    if count <= step:
        return [(batch, weight)]
    return [(batch.slice(start, step), weight * step // count) for start in range(0, count, step)]


def _appended_at(batch: pa.RecordBatch, row: int) -> datetime:
    time: datetime | None = batch.column(_APPENDED_AT)[row].as_py()
    if time is None:
        raise InvalidBatch(_INCOMPLETE)
    return time.astimezone(UTC)
