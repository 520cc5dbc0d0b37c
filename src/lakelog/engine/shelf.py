"""The part of the log that groups are working on, kept in memory: batches as stored, with what leasing asks of them.

All groups of a partition share it. It is a cache: whatever is missing is read again.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa

from lakelog.batches import decode, key_hashes, rows
from lakelog.coordinator.leasing import Candidates, Fate
from lakelog.engine.consuming import Piece
from lakelog.engine.extents import Extents
from lakelog.errors import OffsetOutOfRange, TopicNotFound
from lakelog.model.filter import Filter, Subject
from lakelog.model.message import partition_of_id
from lakelog.model.topic import Topic
from lakelog.storage.store import Append, Appended, Head, HeadState, HotBatch, Read

READ_MESSAGES = 4000
READ_BYTES = 4 << 20
READ_TOGETHER_BYTES = 64 << 10
CANDIDATE_BYTES = 8 << 20
"""At most so much is offered to one decision, and so handed out by it."""
KEEP_BYTES = 64 << 20
LOOK_EVERY_SECONDS = 1.0
_OVERHEAD_BYTES = 500


class Shelved:
    """One batch, decoded when somebody asks for it."""

    __slots__ = ("_batch", "_fates", "_keys", "expires", "hot", "partition", "size", "targets")

    def __init__(self, hot: HotBatch, partition: int) -> None:
        self.hot = hot
        self.partition = partition
        self._batch: pa.RecordBatch | None = decode(hot.payload)
        self._keys: Sequence[int] = key_hashes(self._batch)
        self._fates: dict[tuple[str, str], dict[int, Fate]] = {}
        self.size = self._batch.nbytes + _OVERHEAD_BYTES
        names = self._batch.schema.names
        self.expires: dict[int, int] = _present(self._batch, "expires_at", hot.base) if "expires_at" in names else {}
        self.targets: dict[int, str] = (
            _present(self._batch, "target_group", hot.base) if "target_group" in names else {}
        )
        if not self.expires and not self.targets and hot.count > 1:
            self._batch = None

    @property
    def batch(self) -> pa.RecordBatch:
        return self._batch if self._batch is not None else decode(self.hot.payload)

    @property
    def keys(self) -> Sequence[int]:
        return self._keys

    def fates(self, group: str, wanted: Filter | None) -> Mapping[int, Fate]:
        """Messages that this group does not get: filtered out, or meant for another group."""
        if wanted is None and not self.targets:
            return {}
        name = (group, str(wanted or ""))
        found = self._fates.get(name)
        if found is None:
            found = {offset: Fate.FILTERED for offset, target in self.targets.items() if target != group}
            if wanted is not None:
                found.update(_unwanted(self, wanted))
            self._fates[name] = found
        return found


@dataclass(slots=True)
class Row:
    """Batches of one partition in order, with a gap where no group is, and how far the log was known to reach."""

    batches: list[Shelved] = field(default_factory=list)
    log_start: int = 0
    high_watermark: int = 0
    looked_at: float = 0.0
    grown: bool = True
    """Somebody said that there is more than what was read."""
    is_checked: bool = False
    """Its head was looked at since."""

    def at(self, offset: int) -> int | None:
        """The number of the batch that holds the offset."""
        number = bisect_right(self.batches, offset, key=_base) - 1
        return number if number >= 0 and offset < self.batches[number].hot.end else None

    def is_doubtful(self) -> bool:
        """Whether the log start may be another by now."""
        return not self.is_checked or time.monotonic() - self.looked_at > LOOK_EVERY_SECONDS

    def is_current(self, frontier: int) -> bool:
        """Whether it is known what there is from the frontier on."""
        if self.at(frontier) is not None:
            return True
        fresh = time.monotonic() - self.looked_at < LOOK_EVERY_SECONDS
        return not self.grown and fresh and frontier >= self.high_watermark


def _base(shelved: Shelved) -> int:
    return shelved.hot.base


def _end(shelved: Shelved) -> int:
    return shelved.hot.end


class Shelf:
    """What all groups of this process work on."""

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        self._cells = extents.cells
        self._rows: dict[int, Row] = {}
        self._kept: OrderedDict[Shelved, Row] = OrderedDict()
        """All batches, those that were not used for longest first."""
        self._size = 0

    def row(self, pid: int) -> Row:
        row = self._rows.get(pid)
        if row is None:
            row = self._rows[pid] = Row()
        return row

    def grew(self, pid: int) -> None:
        row = self._rows.get(pid)
        if row is not None:
            row.grown, row.is_checked = True, False

    def grew_all(self) -> None:
        for row in self._rows.values():
            row.grown, row.is_checked = True, False

    def appended(self, append: Append, answer: Appended) -> None:
        """What this process just appended: where it continues what is known here, nobody has to read it."""
        row = self._rows.get(answer.pid)
        if row is None:
            return
        if row.grown or not row.looked_at or answer.base != row.high_watermark:
            row.grown = True
            return
        base = answer.base
        for payload in append.payloads:
            batch = HotBatch(
                base=base,
                count=payload.count,
                appended_at=answer.appended_at,
                epoch=append.epoch,
                bytes_end=0,
                payload=payload.data,
            )
            self._add(row, partition_of_id(answer.pid), [batch])
            base = batch.end
        self._make_room(len(append.payloads))
        row.high_watermark = base

    def backlog(self, pid: int, frontier: int) -> int:
        """How many messages from the frontier on are known of; at least one if there may be any."""
        row = self._rows.get(pid)
        if row is None or row.grown:
            return max(1, row.high_watermark - frontier if row else 0)
        return max(0, row.high_watermark - frontier)

    async def fill(self, topic: Topic, offsets: Mapping[int, int]) -> None:
        """Reads on from these offsets, by partition of one cell, unless what lies there is known.

        What retention did is known within a second, a purge as soon as it is announced.
        """
        rows = {partition: self.row(topic.pid(partition)) for partition in offsets}
        await self.look(topic, [n for n, row in rows.items() if row.is_doubtful() and row.at(offsets[n]) is not None])
        missing = {n: offsets[n] for n, row in rows.items() if not row.is_current(offsets[n])}
        if missing:
            await self._read(topic, missing)

    async def look(self, topic: Topic, partitions: Sequence[int]) -> None:
        """How far the log reaches in these partitions of one cell, without reading it."""
        if not partitions:
            return
        pids = [topic.pid(partition) for partition in partitions]
        heads = await self._cells[topic.cells[partitions[0]]].heads_read(pids)
        if len(heads) < len(pids) or any(head.state is HeadState.DELETED for head in heads):
            raise _gone(topic)
        for head in heads:
            self._saw(self.row(head.pid), head)

    def _saw(self, row: Row, head: Head) -> None:
        row.log_start, row.high_watermark = head.log_start, head.next_offset
        row.looked_at = time.monotonic()
        row.is_checked = True

    async def ends(self, cell: int, pids: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Log start and high watermark as they are now, by partition of one topic."""
        found = {}
        for head in await self._cells[cell].heads_read(pids):
            row = self.row(head.pid)
            if head.next_offset > row.high_watermark or head.log_start > row.log_start:
                row.grown = True
            found[partition_of_id(head.pid)] = (head.log_start, head.next_offset)
        return found

    def candidates(self, row: Row, frontier: int, group: str, wanted: Filter | None, want: int) -> Candidates:
        """Messages from the frontier on, as far as they are here and one decision may take."""
        number = row.at(frontier)
        if number is None:
            return Candidates(start=frontier, keys=())
        start = row.batches[number].hot.base
        keys: list[int] = []
        passed: dict[int, Fate] = {}
        expires: dict[int, int] = {}
        size = 0
        for shelved in islice(row.batches, number, None):
            if shelved.hot.base != start + len(keys):
                break
            self._kept.move_to_end(shelved)
            keys += shelved.keys
            passed.update(shelved.fates(group, wanted))
            expires.update(shelved.expires)
            size += shelved.size
            if size >= CANDIDATE_BYTES or start + len(keys) - frontier >= want:
                break
        return Candidates(start=start, keys=keys, passed=passed, expires=expires)

    async def pieces(self, topic: Topic, partition: int, offsets: Sequence[int]) -> list[Piece]:
        """The batches that hold these offsets (ascending); those that retention took are missing."""
        row = self.row(topic.pid(partition))
        found: list[Piece] = []
        at = 0
        while at < len(offsets):
            hot = await self._hot(row, topic, partition, offsets[at])
            if hot is None:
                at = max(at + 1, bisect_left(offsets, row.log_start, at))
                continue
            last = bisect_left(offsets, hot.end, at)
            found.append(Piece(batch=hot, offsets=offsets[at:last]))
            at = last
        return found

    async def _hot(self, row: Row, topic: Topic, partition: int, offset: int) -> HotBatch | None:
        number = row.at(offset)
        if number is not None:
            self._kept.move_to_end(row.batches[number])
            return row.batches[number].hot
        store = self._cells[topic.cells[partition]]
        try:
            read = await self._extents.read(store, topic.pid(partition), offset, max_messages=1, max_bytes=1)
        except OffsetOutOfRange:
            await self.look(topic, [partition])
            return None
        if read is None:
            return None
        # What comes back does so batch by batch: its neighbours are asked for next.
        self._add(row, partition, read.batches)
        self._make_room(len(read.batches))
        return next((batch for batch in read.batches if batch.base <= offset < batch.end), None)

    async def _read(self, topic: Topic, offsets: Mapping[int, int]) -> None:
        rows = [self.row(topic.pid(partition)) for partition in offsets]
        for row in rows:
            row.grown = False
        # Many at once have little each, and shall not fill the memory if not.
        size = READ_BYTES if len(rows) == 1 else READ_TOGETHER_BYTES
        store = self._cells[topic.cells[next(iter(offsets))]]
        asks = [(topic.pid(partition), offset) for partition, offset in offsets.items()]
        try:
            reads = await self._extents.read_many(store, asks, max_messages=READ_MESSAGES, max_bytes=size)
        except BaseException:
            for row in rows:
                row.grown = True
            raise
        for partition, row, read in zip(offsets, rows, reads, strict=True):
            if isinstance(read, OffsetOutOfRange):
                await self.look(topic, [partition])
                continue
            if read is None or read.head.state is HeadState.DELETED:
                raise _gone(topic)
            self._saw(row, read.head)
            self._add(row, partition, read.batches)
        # All that was read stays until it was decided about, however much it is.
        self._make_room(sum(len(read.batches) for read in reads if isinstance(read, Read)))

    def _add(self, row: Row, partition: int, batches: Sequence[HotBatch]) -> None:
        for hot in batches:
            known = row.at(hot.base)
            if known is not None and row.batches[known].hot.end >= hot.end:
                self._kept.move_to_end(row.batches[known])
                continue
            self._displace(row, hot)
            shelved = Shelved(hot, partition)
            insort(row.batches, shelved, key=_base)
            self._kept[shelved] = row
            self._size += shelved.size

    def _make_room(self, keep: int) -> None:
        """Drops the oldest by use, not by offset: what is read for a group far behind has lower ones than the rest."""
        while self._size > KEEP_BYTES and len(self._kept) > keep:
            gone, its = next(iter(self._kept.items()))
            at = bisect_left(its.batches, gone.hot.base, key=_base)
            self._forget(its, at, at + 1)

    def _displace(self, row: Row, hot: HotBatch) -> None:
        """Takes away what overlaps: a segment's messages may be cut into other batches than when they were hot."""
        first = bisect_right(row.batches, hot.base, key=_end)
        self._forget(row, first, bisect_left(row.batches, hot.end, key=_base))

    def _forget(self, row: Row, first: int, end: int) -> None:
        for gone in row.batches[first:end]:
            self._size -= gone.size
            del self._kept[gone]
        del row.batches[first:end]


def _present(batch: pa.RecordBatch, name: str, base: int) -> dict[int, Any]:
    """What the column says, by offset, where it says something; times in milliseconds."""
    found = {}
    for number, (each,) in enumerate(rows(batch, [name])):
        if each is not None:
            found[base + number] = int(each.timestamp() * 1000) if isinstance(each, datetime) else each
    return found


def _unwanted(shelved: Shelved, wanted: Filter) -> dict[int, Fate]:
    names = ["key", "headers", "value", "content_type", "correlation_id"]
    base = shelved.hot.base
    found = {}
    for number, (key, headers, value, content_type, correlation_id) in enumerate(rows(shelved.batch, names)):
        subject = Subject(
            key=key,
            headers=headers,
            value=value,
            content_type=content_type,
            correlation_id=correlation_id,
            offset=base + number,
            partition=shelved.partition,
        )
        if not wanted.matches(subject):
            found[base + number] = Fate.FILTERED
    return found


def _gone(topic: Topic) -> TopicNotFound:
    return TopicNotFound(f"Topic '{topic.name}' was deleted; create it with `lakelog topics create`.", topic=topic.name)
