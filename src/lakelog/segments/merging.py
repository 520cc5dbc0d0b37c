"""Rewrites adjacent segments of a partition as larger ones, one per day in UTC. It registers nothing.

The messages are hashed when they are read from the old files, and again when they are read back from the new ones, each
time by old segment: both must equal the content hashes that PostgreSQL has. At most two row groups are in memory.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakelog.errors import SegmentDamaged, UnsupportedFormat
from lakelog.model.columns import TopicColumns
from lakelog.model.segment import SealedSegment, Segment
from lakelog.objectstore import ObjectStore
from lakelog.segments.hashing import ContentHash
from lakelog.segments.reader import fetched, verify_messages
from lakelog.segments.schema import SCHEMA
from lakelog.segments.writer import SegmentWriter

_EPOCH = date(1970, 1, 1)
_DAY_US = 86_400_000_000

Put = Callable[[SealedSegment, Path], Segment]
"""Stores a sealed file under a new name, and returns its segment."""


def merge(store: ObjectStore, old: Sequence[Segment], put: Put, columns: TopicColumns | None = None) -> list[Segment]:
    """Write the messages of adjacent segments to new files, and return their segments, by offset.

    There is one file for each day in UTC. The files have typed columns of values if the topic has `columns`.

    Raises:
        SegmentDamaged: If the file of an old segment differs from the sealed one.
        ObjectNotFound: If the file of an old segment is missing.
        UnsupportedFormat: If a later version wrote columns that this version would lose.
    """
    made: list[Segment] = []
    with tempfile.TemporaryDirectory(prefix="lakelog-compact-") as folder:
        rows = by_day(_rows(store, old))
        following = next(rows, None)
        while following is not None:
            file = Path(folder) / f"{len(made)}.parquet"
            day, _batch = following
            with SegmentWriter(file, old[0].partition, columns=columns) as writer:
                while following is not None and following[0] == day:
                    writer.write(following[1])
                    following = next(rows, None)
                sealed = writer.close()
            made.append(put(sealed, file))
            file.unlink()
    return made


def verify_merged(store: ObjectStore, old: Sequence[Segment], new: Sequence[Segment]) -> None:
    """Raise `SegmentDamaged` unless the new files have exactly the sealed bytes, and the messages of the old segments.

    A missing file raises `ObjectNotFound`.
    """
    parts = PartHashes(old)
    for segment in new:
        with fetched(store, segment) as file:
            verify_messages(file, segment, parts.update)
    parts.finish()


class PartHashes:
    """Hashes messages that arrive by offset, and compares them with the content hashes of adjacent segments."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._left = list(reversed(segments))
        self._at = segments[0].first
        self._content = ContentHash()

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the next messages, with the columns of `SCHEMA`."""
        if batch.num_rows and (not self._left or batch.column("offset")[0].as_py() != self._at):
            raise SegmentDamaged(f"Offset {self._at} comes next, and the file has another one.", offset=self._at)
        while batch.num_rows:
            if not self._left:
                raise SegmentDamaged(f"The messages from offset {self._at} on belong to no segment.", offset=self._at)
            segment = self._left[-1]
            share = batch.slice(0, segment.end - self._at)
            self._content.update(share)
            self._at += share.num_rows
            batch = batch.slice(share.num_rows)
            if self._at == segment.end:
                self._compare(segment)

    def finish(self) -> None:
        """Raise `SegmentDamaged` if messages are missing at the end."""
        if self._left:
            raise SegmentDamaged(f"The messages from offset {self._at} on are missing.", offset=self._at)

    def _compare(self, segment: Segment) -> None:
        if self._content.hexdigest() != segment.content_hash:
            detail = (
                f"The messages from offset {segment.first} to {segment.end - 1} differ from those of {segment.path}."
            )
            raise SegmentDamaged(detail, path=segment.path, partition=segment.partition)
        self._left.pop()
        self._content = ContentHash()


def _rows(store: ObjectStore, old: Sequence[Segment]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the segments, each after its file was compared with the sealed one."""
    parts = PartHashes(old)
    for segment in old:
        with fetched(store, segment) as file:
            if more := [name for name in file.schema.names if name not in SCHEMA.names]:
                raise UnsupportedFormat(
                    f"{segment.path} has the column {more[0]!r}, which this version would lose. Upgrade Lakelog, or "
                    "compact with the version that wrote it.",
                    column=more[0],
                )
            for batch in file.read():
                parts.update(batch)
                yield batch
    parts.finish()


def by_day(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[date, pa.RecordBatch]]:
    """Yield the batches, split where the day of the append time changes."""
    for batch in batches:
        days = batch.column("appended_at").cast(pa.int64()).to_numpy() // _DAY_US
        edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), batch.num_rows]
        for start, end in itertools.pairwise(edges):
            yield _EPOCH + timedelta(days=int(days[start])), batch.slice(start, end - start)


def day_of(time: datetime) -> date:
    """Return the day of a time in UTC."""
    return time.astimezone(UTC).date()
