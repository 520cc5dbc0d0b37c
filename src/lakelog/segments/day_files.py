"""Writes messages of a load to segment files, one after another, and reads each file back. It registers nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa

from lakelog import failpoints
from lakelog.model.columns import TopicColumns
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore
from lakelog.segments.layout import segment_path
from lakelog.segments.merging import by_day
from lakelog.segments.reader import verify
from lakelog.segments.writer import SegmentWriter

FILE_BYTES = 128 << 20


@dataclass(kw_only=True)
class _OpenFile:
    partition: int
    day: date
    path: Path
    writer: SegmentWriter


@dataclass(kw_only=True)
class DayFiles:
    """Writes messages, sorted by partition and offset, to files that each have one partition and one day in UTC.

    Attributes:
        store: The object store.
        environment_id: The id of the environment.
        incarnation: The id of the topic.
        folder: A folder for the file that is open.
        file_bytes: The size from which a file is closed.
        columns: The topic's columns, by which the files get typed columns of values.
    """

    store: ObjectStore
    environment_id: int
    incarnation: int
    folder: Path
    file_bytes: int = FILE_BYTES
    columns: TopicColumns | None = None
    _open: _OpenFile | None = None
    _count: int = 0

    def add(self, partition: int, messages: pa.RecordBatch) -> Iterator[Segment]:
        """Write messages with the columns of a segment, and yield the segments that are complete."""
        for day, piece in by_day(iter([messages])):
            opened = self._open
            is_other = opened is None or (opened.partition, opened.day) != (partition, day)
            if opened is None or is_other or opened.writer.bytes >= self.file_bytes:
                yield from self.close()
                opened = self._begin(partition, day)
            opened.writer.write(piece)

    def close(self) -> Iterator[Segment]:
        """Seal, store and read back the open file, and yield its segment."""
        if self._open is None:
            return
        opened, self._open = self._open, None
        with opened.writer as writer:
            sealed = writer.close()
        version = 0 if self.columns is None else self.columns.version
        place = (self.environment_id, self.incarnation, sealed.partition, sealed.first, sealed.end)
        path = segment_path(*place, columns=version)
        failpoints.hit("load.before_put")
        self.store.put(path, opened.path)
        opened.path.unlink()
        segment = sealed.segment(path)
        verify(self.store, segment)
        yield segment

    def _begin(self, partition: int, day: date) -> _OpenFile:
        self._count += 1
        path = self.folder / f"{self._count}.parquet"
        writer = SegmentWriter(path, partition, is_loaded=True, columns=self.columns)
        self._open = _OpenFile(partition=partition, day=day, path=path, writer=writer)
        return self._open
