"""Partitions whose log is in segments, and the state of their files: intact, damaged, or slow to read.

No file is written. The database answers reads of such a partition with a segment, and servers read the segment here, in
virtual time, from the same messages.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lakelog.errors import SegmentDamaged
from lakelog.model.message import partition_of_id
from lakelog.model.segment import Segment
from lakelog.storage.memory import MemoryStore
from lakelog.storage.store import HotBatch, ReadResult
from prove.simulation.loop import driven


class ColdFile:
    """The only segment of a partition, with the share of reads that find it damaged and the seconds per read."""

    def __init__(self, path: str, store: MemoryStore, pid: int) -> None:
        self.path = path
        self._store = store
        self._pid = pid
        self.damaged = 0.0
        self.seconds = 0.0

    def read(self, offset: int, max_messages: int, max_bytes: int) -> list[HotBatch]:
        """Return one batch, even if more may be read, so that the next batch is not cached when it is requested."""
        read = driven(self._store.read(self._pid, offset, max_messages=max_messages, max_bytes=max_bytes))
        return list(read.batches[:1])


class ColdFiles:
    """All cold partitions of a run."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.files: dict[int, ColdFile] = {}
        """The segments, by partition."""
        self.found_damaged: Callable[[int], None] = lambda pid: None
        """A function that is called for each read that found its file damaged."""

    def seal(self, pid: int, path: str, store: MemoryStore) -> ColdFile:
        file = self.files[pid] = ColdFile(path, store, pid)
        return file

    def sealed(self, pid: int, read: Any) -> Any:
        """Return the result of a read, as a segment if the partition is cold."""
        file = self.files.get(pid)
        if file is None or not isinstance(read, ReadResult) or not read.batches:
            return read
        first, last = read.batches[0], read.batches[-1]
        segment = Segment(
            path=file.path,
            partition=partition_of_id(pid),
            first=first.base,
            end=read.head.next_offset,
            bytes=1,
            file_hash="",
            content_hash="",
            first_at=first.appended_at,
            last_at=last.appended_at,
            epoch=last.epoch,
        )
        return replace(read, batches=[], segment=segment)

    async def run(self, segment: Segment, work: Callable[[Any], Any]) -> Any:
        """Read a segment. This replaces `Extents._run`."""
        pid, file = next(each for each in self.files.items() if each[1].path == segment.path)
        if file.seconds:
            await asyncio.sleep(file.seconds)
        if self._chance.random() < file.damaged:
            self.found_damaged(pid)
            raise SegmentDamaged(f"The file {file.path} is missing.", path=file.path)
        return work(file)
