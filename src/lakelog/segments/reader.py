"""Reads the file of a segment: the footer and the requested row groups, or the whole file to verify it.

Every page is checked against its checksum, and the offsets against the footer: damage raises an error and never returns
wrong messages. The caller provides the file.
"""

from __future__ import annotations

import hashlib
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from itertools import accumulate
from types import TracebackType
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.errors import ObjectStoreUnavailable, OffsetOutOfRange, SegmentDamaged, UnsupportedFormat, first_line
from lakelog.model.segment import Segment
from lakelog.model.times import EPOCH, MICROSECOND
from lakelog.objectstore import ObjectStore
from lakelog.segments.hashing import ContentHash
from lakelog.segments.layout import columns_of_file
from lakelog.segments.schema import FORMAT, POSITIONS, SCHEMA, TYPED
from lakelog.segments.writer import COLUMNS_KEY, CONTENT_KEY, FORMAT_KEY, LOADED_KEY, OPTIONAL_KEY, PARTITION_KEY

_OFFSET, _APPENDED_AT = SCHEMA.get_field_index("offset"), SCHEMA.get_field_index("appended_at")


class SegmentFile:
    """An open segment. One thread at a time may use it.

    If `segment` is given, the file must match it: another file under its name counts as damage.
    """

    def __init__(self, file: BinaryIO | pa.NativeFile, segment: Segment | None = None) -> None:
        self._name = segment.path if segment is not None else str(getattr(file, "name", "the segment"))
        with self._damage_is_named():
            self._parquet = pq.ParquetFile(file, pre_buffer=True, page_checksum_verification=True)
            footer = self._parquet.metadata
            about = {name.decode(): text.decode() for name, text in (footer.metadata or {}).items()}
            self.schema: pa.Schema = _stored(self._parquet.schema_arrow, about)
            """The columns of the file, without `TYPED`. Those that this version does not know are optional."""
            self.columns = int(about.get(COLUMNS_KEY, "0"))
            """The version of the topic's columns by which `TYPED` is filled; 0 if the file does not have it."""
            self._check_format(about)
            counts = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
            offsets = footer.row_group(0).column(_OFFSET).statistics
            self.first: int = offsets.min
            self.partition = int(about[PARTITION_KEY])
            self.content_hash = about.get(CONTENT_KEY, "")
            self.is_loaded = LOADED_KEY in about
        self.rows: int = sum(counts)
        self.end: int = self.first + self.rows
        self._starts: list[int] = list(accumulate(counts[:-1], initial=self.first))
        if segment is not None:
            self._check_segment(segment)

    def read(
        self, first: int | None = None, end: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield exactly the messages from `first` up to, not including, `end`, one batch per row group.

        The next row group is read while the caller works on a batch. `columns` selects columns of `SCHEMA`; the default
        is all.
        """
        first = self.first if first is None else first
        end = self.end if end is None else end
        if first < self.first or end > self.end:
            detail = f"{self._name} has the offsets {self.first} to {self.end}, not {first} to {end}."
            raise OffsetOutOfRange(detail, offset=first)
        names = SCHEMA.names if columns is None else [name for name in SCHEMA.names if name in columns]
        numbers = range(bisect_right(self._starts, first) - 1, bisect_left(self._starts, end)) if first < end else ()
        for number, batch in zip(numbers, self._ahead(numbers, names), strict=True):
            start = self._starts[number]
            low, high = max(first, start) - start, min(end - start, batch.num_rows)
            yield _known(batch, names).slice(low, high - low)

    def read_as_written(self) -> Iterator[pa.RecordBatch]:
        """Yield all messages with the columns of the file (`schema`), one batch per row group."""
        yield from self._ahead(range(len(self._starts)), self.schema.names)

    def group_at(self, offset: int) -> tuple[int, int]:
        """Return the first offset and the end of the row group that holds the offset."""
        number = bisect_right(self._starts, offset) - 1
        is_last = number + 1 == len(self._starts)
        return self._starts[number], self.end if is_last else self._starts[number + 1]

    def offset_at_time(self, time: datetime) -> int:
        """Return the first offset that was appended at `time` or later, or `end`."""
        wanted = (time - EPOCH) // MICROSECOND
        footer = self._parquet.metadata
        for number, start in enumerate(self._starts):
            if footer.row_group(number).column(_APPENDED_AT).statistics.max < time:
                continue
            times = self._group(number, ["appended_at"]).column("appended_at").cast(pa.int64()).to_numpy()
            found = np.flatnonzero(times >= wanted)
            if len(found):
                return int(start + found[0])
        return self.end

    def close(self) -> None:
        self._parquet.close(force=True)

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ahead(self, numbers: Sequence[int], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield row groups. A thread reads the next one, if there is one; at most two are in memory."""
        if len(numbers) < 2:
            yield from (self._group(number, names) for number in numbers)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="segment") as thread:
            coming = thread.submit(self._group, numbers[0], names)
            for number in numbers[1:]:
                batch = coming.result()
                coming = thread.submit(self._group, number, names)
                yield batch
            yield coming.result()

    def _group(self, number: int, names: Sequence[str]) -> pa.RecordBatch:
        """Return those of the columns that the file has; the offsets if it has none."""
        start = self._starts[number]
        columns = [name for name in names if name in self.schema.names] or ["offset"]
        with self._damage_is_named():
            table = self._parquet.read_row_group(number, columns=columns, use_threads=False)
            batch = _one_batch(table)
        expected = self._starts[number + 1] if number + 1 < len(self._starts) else self.end
        if batch.num_rows != expected - start:
            raise self._damaged("a row group is short")
        if "offset" in columns:
            offsets = batch.column("offset").to_numpy(zero_copy_only=False)
            if offsets[0] != start or not (np.diff(offsets) == 1).all():
                raise self._damaged("its offsets are not dense")
        return batch

    def _check_format(self, about: dict[str, str]) -> None:
        number = about.get(FORMAT_KEY, "")
        if number != str(FORMAT):
            if number.isdigit():
                raise UnsupportedFormat(f"Segment format {number} is unknown. Upgrade Lakelog.", format=int(number))
            raise self._damaged("it is not a segment")
        optional = about.get(OPTIONAL_KEY, "").split(",")
        unknown = [name for name in self.schema.names if name not in SCHEMA.names]
        known = [field for field in self.schema if field.name in SCHEMA.names]
        is_sound = (
            len({*self.schema.names}) == len(self.schema) and (*self.schema.names[: len(POSITIONS)],) == POSITIONS
        )
        if not is_sound or not all(field.equals(SCHEMA.field(field.name)) for field in known):
            raise self._damaged("it has other columns")
        if refused := next((name for name in unknown if name not in optional), None):
            raise UnsupportedFormat(
                f"{self._name} has the column {refused!r}, which this version does not know. Upgrade Lakelog.",
                column=refused,
            )

    def _check_segment(self, segment: Segment) -> None:
        if columns_of_file(segment.path) != self.columns:
            raise self._damaged(f"the file has version {self.columns} of the columns, which its name does not say")
        has = (self.partition, self.first, self.end, self.content_hash)
        if has != (segment.partition, segment.first, segment.end, segment.content_hash):
            detail = f"the file has partition {has[0]}, offsets {has[1]} to {has[2]} and content {has[3]}"
            raise self._damaged(detail)

    def _damaged(self, why: str) -> SegmentDamaged:
        return SegmentDamaged(f"{self._name} is damaged: {why}.", path=self._name)

    @contextmanager
    def _damage_is_named(self) -> Iterator[None]:
        # Errors of the object store pass through Arrow unchanged. The others come from Arrow itself.
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, KeyError, AttributeError, IndexError) as exc:
            raise self._damaged(first_line(exc).rstrip(".")) from exc


def _stored(schema: pa.Schema, about: dict[str, str]) -> pa.Schema:
    """Return the columns that the messages were stored with. Typed columns are computed from them."""
    if COLUMNS_KEY not in about:
        return schema
    return pa.schema([field for field in schema if field.name not in TYPED])


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) != 1:
        batches = [pa.concat_batches(batches)]
    batch = batches[0]
    # Without Parquet's field ids, so that batches from segments and from other sources have the same schema.
    return batch.replace_schema_metadata(None)


def _known(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the batch with exactly these columns of `SCHEMA`; those that the file lacks are null."""
    if batch.schema.names == list(names):
        return batch
    columns = [
        batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows, SCHEMA.field(name).type)
        for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([SCHEMA.field(name) for name in names]))


def opened(store: ObjectStore, segment: Segment) -> SegmentFile:
    """Open the file of a segment. A file that is shorter than the sealed one is damaged: a retry would not help."""
    file = store.open_file(segment.path, segment.bytes)
    try:
        return SegmentFile(file, segment)
    except BaseException as error:
        file.close()
        if isinstance(error, ObjectStoreUnavailable) and (size := store.size(segment.path)) < segment.bytes:
            raise _damaged(segment, f"it has {size} bytes instead of {segment.bytes}") from error
        raise


def verify(store: ObjectStore, segment: Segment) -> None:
    """Raise `SegmentDamaged` unless the store returns exactly the sealed bytes.

    A missing file raises `ObjectNotFound`, and a store that does not respond raises `ObjectStoreUnavailable`; neither
    says anything about the messages.
    """
    with fetched(store, segment) as file:
        verify_messages(file, segment)


@contextmanager
def fetched(store: ObjectStore, segment: Segment) -> Iterator[SegmentFile]:
    """Open a local copy of the file of a segment, with exactly the sealed bytes. Errors are those of `verify`."""
    if (size := store.size(segment.path)) != segment.bytes:
        raise _damaged(segment, f"it has {size} bytes instead of {segment.bytes}")
    with tempfile.TemporaryFile(prefix="lakelog-verify-") as copy:
        digest = hashlib.sha256()
        for chunk in store.chunks(segment.path, size):
            digest.update(chunk)
            copy.write(chunk)
        # Checked before Arrow reads the bytes: it may crash the process on damaged data.
        if digest.hexdigest() != segment.file_hash:
            raise _damaged(segment, "its bytes differ from the sealed ones")
        copy.seek(0)
        with SegmentFile(copy, segment) as file:
            yield file


def verify_messages(
    file: SegmentFile, segment: Segment, watch: Callable[[pa.RecordBatch], None] = lambda batch: None
) -> None:
    """Raise `SegmentDamaged` unless the file has the messages of the segment. `watch` is called with each row group."""
    content, ends = ContentHash(file.schema), []
    for batch in file.read_as_written():
        if batch.column("partition").unique().to_pylist() != [segment.partition]:
            raise _damaged(segment, "it has messages of another partition")
        content.update(batch)
        watch(batch)
        ends += [batch.column("appended_at")[0].as_py(), batch.column("appended_at")[-1].as_py()]
        epoch = batch.column("epoch")[-1].as_py()
    if content.hexdigest() != segment.content_hash:
        raise _damaged(segment, "its messages differ from the sealed ones")
    if (ends[0], ends[-1], epoch) != (segment.first_at, segment.last_at, segment.epoch):
        raise _damaged(segment, f"it holds offsets {ends[0]} to {ends[-1]} and ends in epoch {epoch}")


def _damaged(segment: Segment, why: str) -> SegmentDamaged:
    return SegmentDamaged(f"{segment.path} is damaged: {why}.", path=segment.path, partition=segment.partition)
