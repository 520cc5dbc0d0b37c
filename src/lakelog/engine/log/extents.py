"""Extents: a partition's log as one sequence, whether it is in hot batches or in cold segments.

Readers get batches. A segment's file is read in a thread; its footer and the ranges read last are cached. The store
says whether hot batches or a segment hold an offset. An error names the offsets that cannot be read; the path of the
file appears only in the log of this process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from lakelog.errors import ConfigurationError, LakelogError, ObjectNotFound, OffsetOutOfRange, SegmentDamaged
from lakelog.model.segment import Segment
from lakelog.reporting import FailureLog
from lakelog.storage.store import HotBatch, PartitionStore, ReadResult

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.objectstore import ObjectStore
    from lakelog.segments.reader import SegmentFile

OPEN_FILES = 32
_AT_ONCE = 6
_STRETCH_MESSAGES = 4000
_BATCH_MESSAGES = 1000
KEPT_BYTES = 32 << 20
"""Bytes of cached ranges. Groups that catch up read different parts of one file, each in order."""
KEPT_GROUP_BYTES = 128 << 20
"""Bytes of cached row groups, from which ranges are encoded. Decoding a row group costs more than encoding a range."""

_log = logging.getLogger(__name__)

Found = TypeVar("Found")


class Extents:
    """Reads all partitions; one per engine. `url` is the URL of the object store, if there is one."""

    def __init__(self, cells: Mapping[int, PartitionStore], url: str | None = None) -> None:
        self.cells = cells
        self.url = url
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._open: OrderedDict[str, _Opened] = OrderedDict()
        self._kept: _Kept[list[HotBatch]]
        self._groups: _Kept[pa.RecordBatch]
        self._failures = FailureLog("A segment cannot be read", "segment_read", _log)
        self._unused: list[_Opened] = []
        """Files that are no longer read; they are closed at the next read."""
        self.drop(0)

    def drop(self, cell: int) -> None:
        """Drop the cached files of all cells, because there are few."""
        self._unused += self._open.values()
        self._open.clear()
        self._kept = _Kept(lambda batches: sum(len(batch.payload) for batch in batches), lambda: KEPT_BYTES)
        self._groups = _Kept(lambda group: group.nbytes, lambda: KEPT_GROUP_BYTES)

    async def read(
        self, store: PartitionStore, pid: int, offset: int, *, max_messages: int, max_bytes: int
    ) -> ReadResult | None:
        """Read like `PartitionStore.read`, but always return batches."""
        read = await store.read(pid, offset, max_messages=max_messages, max_bytes=max_bytes)
        if read is None or read.segment is None:
            return read
        return await self._thawed(store, read, pid, offset, (max_messages, max_bytes))

    async def read_many(
        self, store: PartitionStore, asks: Sequence[tuple[int, int]], *, max_messages: int, max_bytes: int
    ) -> list[ReadResult | LakelogError | None]:
        """Read like `PartitionStore.read_many`, but return batches, or an error if a segment could not be read."""
        reads = await store.read_many(asks, max_messages=max_messages, max_bytes=max_bytes)

        async def one(
            ask: tuple[int, int], read: ReadResult | OffsetOutOfRange | None
        ) -> ReadResult | LakelogError | None:
            if not isinstance(read, ReadResult) or read.segment is None:
                return read
            try:
                return await self._thawed(store, read, *ask, (max_messages, max_bytes))
            except LakelogError as refusal:
                return refusal

        if not any(isinstance(read, ReadResult) and read.segment for read in reads):
            return list(reads)

        return list(await asyncio.gather(*map(one, asks, reads)))

    async def offset_at_time(self, store: PartitionStore, pid: int, time: datetime) -> int:
        """Return the first offset that was appended at `time` or later, even inside a segment."""
        offset, segment = await store.cold.search_time(pid, time)
        if segment is None:
            return offset
        return max(offset, await self._run(segment, lambda opened: opened.offset_at_time(time)))

    async def get(self, path: str) -> bytes:
        """Return a whole object of the store."""
        async with self._free:
            return await asyncio.to_thread(lambda: self._store.get(path))

    async def close(self) -> None:
        self.drop(0)
        await self._close_unused()

    async def _close_unused(self) -> None:
        while self._unused:
            await asyncio.to_thread(self._unused.pop().close)

    async def _thawed(
        self, store: PartitionStore, read: ReadResult, pid: int, offset: int, limits: tuple[int, int]
    ) -> ReadResult:
        assert read.segment is not None
        try:
            batches = await self._run(read.segment, lambda opened: opened.read(offset, *limits))
        except ObjectNotFound as exc:
            # Perhaps the log start passed it a day ago and its file was swept, which is a different error.
            await store.read(pid, offset, max_messages=1, max_bytes=1)
            raise self._unreadable(read.segment, SegmentDamaged(f"{read.segment.path} is missing.")) from exc
        return replace(read, batches=batches, segment=None)

    async def _run(self, segment: Segment, work: Callable[[_Opened], Found]) -> Found:
        opened = self._open.get(segment.path)
        if opened is None:
            opened = self._open[segment.path] = _Opened(self._store, segment, self._kept, self._groups)
        self._open.move_to_end(segment.path)
        if len(self._open) > OPEN_FILES:
            self._unused.append(self._open.popitem(last=False)[1])
        async with self._free:
            await self._close_unused()
            try:
                return await asyncio.to_thread(work, opened)
            except SegmentDamaged as error:
                raise self._unreadable(segment, error) from error

    def _unreadable(self, segment: Segment, damage: SegmentDamaged) -> SegmentDamaged:
        """Return the error for readers. It names the whole segment, unless only a part of it is damaged."""
        self._failures.failed(damage.detail, kind=segment.path)
        first = damage.subject.get("first_offset", segment.first)
        end = damage.subject.get("end_offset", segment.end)
        assert isinstance(first, int) and isinstance(end, int)
        return SegmentDamaged(
            f"Offsets {first} to {end - 1} of partition {segment.partition} cannot be read: the file of their segment "
            "is damaged or missing.",
            partition=segment.partition,
            first_offset=first,
            end_offset=end,
        )

    @cached_property
    def _store(self) -> ObjectStore:
        from lakelog.objectstore import open_store

        if self.url is None:
            raise ConfigurationError(
                "A part of the log is in an object store that this process does not know. Set LAKELOG_OBJECT_STORE."
            )
        return open_store(self.url)


class _Kept(Generic[Found]):
    """A thread-safe cache of what was read last, by file and first offset."""

    def __init__(self, size: Callable[[Found], int], limit: Callable[[], int]) -> None:
        self._size = size
        self._limit = limit
        self._mutex = threading.Lock()
        self._found: OrderedDict[tuple[str, int], Found] = OrderedDict()
        self._bytes = 0

    def get(self, path: str, first: int) -> Found | None:
        with self._mutex:
            found = self._found.get((path, first))
            if found is not None:
                self._found.move_to_end((path, first))
            return found

    def put(self, path: str, first: int, found: Found) -> None:
        with self._mutex:
            before = self._found.pop((path, first), None)
            self._found[path, first] = found
            self._bytes += self._size(found) - (0 if before is None else self._size(before))
            while self._bytes > self._limit() and len(self._found) > 1:
                self._bytes -= self._size(self._found.popitem(last=False)[1])


class _Opened:
    """A segment whose footer was read, for one thread at a time."""

    def __init__(
        self, store: ObjectStore, segment: Segment, kept: _Kept[list[HotBatch]], groups: _Kept[pa.RecordBatch]
    ) -> None:
        self._store = store
        self._segment = segment
        self._kept = kept
        self._groups = groups
        self._mutex = threading.Lock()
        self._file: SegmentFile | None = None

    def read(self, offset: int, max_messages: int, max_bytes: int) -> list[HotBatch]:
        """Return batches from the one that holds the offset, up to a limit, to damage, or to the end of the segment."""
        found: list[HotBatch] = []
        messages = size = 0
        with self._mutex:
            while offset < self._segment.end and (not found or (messages < max_messages and size < max_bytes)):
                try:
                    batch = self._at(offset)
                except SegmentDamaged:
                    # Return the readable batches first; the next read starts at the damage and opens the file again.
                    self._close()
                    if found:
                        break
                    raise
                found.append(batch)
                messages += batch.count
                size += len(batch.payload)
                offset = batch.end
        return found

    def offset_at_time(self, time: datetime) -> int:
        with self._mutex:
            return self._opened().offset_at_time(time)

    def close(self) -> None:
        with self._mutex:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _opened(self) -> SegmentFile:
        from lakelog.segments.reader import opened

        if self._file is None:
            self._file = opened(self._store, self._segment)
        return self._file

    def _at(self, offset: int) -> HotBatch:
        """Return the batches of a range around the offset, because the following batches are usually read soon.

        The bounds of the range do not depend on the request, so that readers can share the cached range.
        """
        start, end = self._opened().group_at(offset)
        first = start + (offset - start) // _STRETCH_MESSAGES * _STRETCH_MESSAGES
        found = self._kept.get(self._segment.path, first)
        if found is None:
            try:
                found = self._stretch(first, min(end, first + _STRETCH_MESSAGES))
            except SegmentDamaged as error:
                # Other row groups of the file may be sound.
                raise SegmentDamaged(error.detail, first_offset=start, end_offset=end) from error
            self._kept.put(self._segment.path, first, found)
        return found[bisect_right(found, offset, key=lambda batch: batch.base) - 1]

    def _stretch(self, first: int, end: int) -> list[HotBatch]:
        from lakelog.batches import encode
        from lakelog.segments.segment_batches import split_batches

        found = []
        for run in split_batches(self._rows(first, end)):
            for at in range(0, run.count, _BATCH_MESSAGES):
                piece = run.batch.slice(at, _BATCH_MESSAGES)
                found.append(
                    HotBatch(
                        base=run.base + at,
                        count=piece.num_rows,
                        appended_at=run.appended_at,
                        epoch=run.epoch,
                        bytes_end=0,
                        payload=encode(piece),
                    )
                )
        return found

    def _rows(self, first: int, end: int) -> pa.RecordBatch:
        """Return messages of one row group, which is read whole."""
        start, stop = self._opened().group_at(first)
        group = self._groups.get(self._segment.path, start)
        if group is None:
            group = next(self._opened().read(start, stop))
            self._groups.put(self._segment.path, start, group)
        return group.slice(first - start, end - first)
