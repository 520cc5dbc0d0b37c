"""The batch cache: the part of the log that groups work on, as stored batches with the columns that leasing needs.

All groups of a partition share it. Missing batches are read again.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from lakelog.coordinator.leasing.operations import Candidates, ExclusionReason
from lakelog.engine.leasing.cached_batch import CachedBatch
from lakelog.engine.leasing.consuming import LeasedBatch
from lakelog.engine.leasing.exclusions import INLINE_STEPS, FilterEvaluator
from lakelog.engine.leasing.partition_stop import as_error, concerns_one_partition
from lakelog.engine.log.extents import Extents
from lakelog.errors import LakelogError, OffsetOutOfRange, TopicNotFound, Unavailable
from lakelog.model.filter import Filter
from lakelog.model.message import partition_of_id
from lakelog.model.topic import Topic
from lakelog.storage.store import Append, Appended, Head, HeadState, HotBatch, PartitionStore, ReadResult

READ_MESSAGES = 4000
READ_BYTES = 4 << 20
READ_TOGETHER_BYTES = 64 << 10
CANDIDATE_BYTES = 8 << 20
"""The largest number of messages offered to one decision; it cannot lease more."""
KEEP_BYTES = 64 << 20
LOOK_EVERY_SECONDS = 1.0
EVALUATE_BATCHES = 100
"""The largest number of batches in which an expensive filter is evaluated before one decision."""

_Asks = Sequence[tuple[int, int]]


@dataclass(slots=True, eq=False)
class CachedPartition:
    """The cached batches of one partition in order, with gaps where no group reads, and the known bounds of the log."""

    batches: list[CachedBatch] = field(default_factory=list)
    cell: int | None = None
    """The cell that the partition was read from; None if it was never read."""
    log_start: int = 0
    high_watermark: int = 0
    seen_end: int = 0
    """The highest end of the log that was noticed. Messages up to it may not be read yet."""
    looked_at: float = 0.0
    growths: int = 1
    """The number of notifications that the start or end of the log changed, plus one."""
    known_growths: int = 0
    """The value of `growths` when the newest known head was requested."""
    is_checked: bool = False
    """True if the head was read after the last notification."""

    @property
    def grown(self) -> bool:
        """Return whether the log may have grown beyond the known end."""
        return self.growths > self.known_growths

    def grew(self) -> None:
        self.growths += 1
        self.is_checked = False

    def saw(self, head: Head, growths: int) -> None:
        """Update the bounds from a head that was requested when `growths` had this value.

        Heads may arrive out of order.
        """
        if growths > self.known_growths:
            self.log_start, self.high_watermark = head.log_start, head.next_offset
            self.known_growths = growths
        else:
            self.log_start = max(self.log_start, head.log_start)
            self.high_watermark = max(self.high_watermark, head.next_offset)
        self.is_checked = self.known_growths == self.growths
        self.looked_at = time.monotonic()

    def at(self, offset: int) -> int | None:
        """Return the index of the batch that holds the offset."""
        number = bisect_right(self.batches, offset, key=_base) - 1
        return number if number >= 0 and offset < self.batches[number].hot.end else None

    def is_doubtful(self) -> bool:
        """Return whether the log start may have changed."""
        return not self.is_checked or time.monotonic() - self.looked_at > LOOK_EVERY_SECONDS

    def is_current(self, frontier: int) -> bool:
        """Return whether the messages from the frontier on are known."""
        if self.at(frontier) is not None:
            return True
        fresh = time.monotonic() - self.looked_at < LOOK_EVERY_SECONDS
        return not self.grown and fresh and frontier >= self.high_watermark


def _base(cached: CachedBatch) -> int:
    return cached.hot.base


def _end(cached: CachedBatch) -> int:
    return cached.hot.end


class BatchCache:
    """The batches that all groups of this process work on."""

    def __init__(self, extents: Extents, evaluator: FilterEvaluator | None = None) -> None:
        self._extents = extents
        self._evaluator = evaluator or FilterEvaluator()
        self._cells = extents.cells
        self._rows: dict[int, CachedPartition] = {}
        self._kept: OrderedDict[CachedBatch, CachedPartition] = OrderedDict()
        """All batches, the least recently used first."""
        self._size = 0

    def row(self, pid: int) -> CachedPartition:
        row = self._rows.get(pid)
        if row is None:
            row = self._rows[pid] = CachedPartition()
        return row

    def _row_of(self, topic: Topic, partition: int) -> CachedPartition:
        """Return the cached partition for a read.

        If it has been replaced when the read ends, its cell was dropped.
        """
        row = self.row(topic.pid(partition))
        row.cell = topic.cells[partition]
        return row

    def drop(self, cell: int) -> None:
        for pid, row in list(self._rows.items()):
            if row.cell == cell:
                self._forget(row, 0, len(row.batches))
                del self._rows[pid]

    def grew(self, pid: int | None) -> None:
        """Mark the bounds of the partition's log as outdated. None marks those of all partitions."""
        for row in self._rows.values() if pid is None else filter(None, [self._rows.get(pid)]):
            row.grew()

    def appended(self, append: Append, answer: Appended) -> None:
        """Cache batches that this process just appended, if they continue the cached batches."""
        row = self._rows.get(answer.pid)
        base = answer.base
        if row is None or base + sum(payload.count for payload in append.payloads) <= row.high_watermark:
            return
        if row.grown or base != row.high_watermark:
            row.growths += 1
            return
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
        # The growth is known: a head that was requested before does not set the end back.
        row.growths = row.known_growths = row.growths + 1

    def backlog(self, pid: int, frontier: int) -> int:
        """Return how many messages are known from the frontier on; at least one if there may be any."""
        row = self._rows.get(pid)
        if row is None or row.grown:
            return max(1, row.high_watermark - frontier if row else 0)
        return max(0, row.high_watermark - frontier)

    def is_ready(self, pid: int, frontier: int, *, is_checked: bool) -> bool:
        """Return whether the messages from the frontier on are known.

        `is_checked` means that the log start was just read.
        """
        row = self.row(pid)
        start = max(frontier, row.log_start)
        return row.is_current(start) and (is_checked or not row.is_doubtful() or row.at(start) is None)

    async def fill(self, topic: Topic, offsets: Mapping[int, int]) -> dict[int, LakelogError]:
        """Read the log from these offsets on, by partition of one cell, unless the batches are cached.

        Return the errors by partition. Retention is noticed within a second, a purge as soon as it is announced.
        """
        rows = {partition: self.row(topic.pid(partition)) for partition in offsets}
        await self.look(topic, [n for n, row in rows.items() if row.is_doubtful() and row.at(offsets[n]) is not None])
        missing = {n: offsets[n] for n, row in rows.items() if not row.is_current(offsets[n])}
        return await self._read(topic, missing) if missing else {}

    async def look(self, topic: Topic, partitions: Sequence[int]) -> None:
        """Read the bounds of the log in these partitions of one cell."""
        if not partitions:
            return
        pids = [topic.pid(partition) for partition in partitions]
        rows = {row: row.growths for row in (self._row_of(topic, partition) for partition in partitions)}
        heads = {head.pid: head for head in await self._cells[topic.cells[partitions[0]]].heads_read(pids)}
        if len(heads) < len(pids) or any(head.state is HeadState.DELETED for head in heads.values()):
            raise _gone(topic)
        for pid, (row, growths) in zip(pids, rows.items(), strict=True):
            row.saw(heads[pid], growths)

    async def ends(self, cell: int, pids: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return log start and high watermark as they are now, by partition of one topic."""
        found = {}
        for head in await self._cells[cell].heads_read(pids):
            self.saw_ends(head.pid, head.log_start, head.next_offset)
            found[partition_of_id(head.pid)] = (head.log_start, head.next_offset)
        return found

    def saw_ends(self, pid: int, log_start: int, next_offset: int) -> None:
        """Mark the bounds of the partition's log as outdated if it is now known to be longer or to start later."""
        row = self.row(pid)
        row.seen_end = max(row.seen_end, next_offset)
        if next_offset > row.high_watermark or log_start > row.log_start:
            row.growths += 1

    def has_more(self, pid: int, frontier: int) -> bool:
        """Return whether the log is known to reach beyond the frontier."""
        row = self._rows.get(pid)
        return row is not None and max(row.high_watermark, row.seen_end) > frontier

    def candidates(
        self, row: CachedPartition, frontier: int, group: str, wanted: Filter | None, want: int
    ) -> Candidates:
        """Return the cached messages from the frontier on, as many as one decision may take."""
        number = row.at(frontier)
        if number is None:
            return Candidates(start=frontier, keys=())
        start = row.batches[number].hot.base
        keys: list[int] = []
        passed: dict[int, ExclusionReason] = {}
        expires: dict[int, int] = {}
        size, steps = 0, INLINE_STEPS
        for cached in islice(row.batches, number, None):
            if cached.hot.base != start + len(keys):
                break
            self._kept.move_to_end(cached)
            until = cached.hot.end
            if cached.size > CANDIDATE_BYTES:
                # Compressed messages expand when they are handed out.
                fitting = cached.hot.count * CANDIDATE_BYTES // cached.size
                until = min(until, max(frontier, cached.hot.base) + max(1, fitting))
            exclusions = cached.exclusions(group, wanted)
            if exclusions is not None:
                steps -= exclusions.steps
                if steps >= 0:
                    exclusions.complete()
                passed.update(exclusions.excluded)
                # The rest is evaluated before the next decision.
                until = min(until, exclusions.until)
            keys += cached.keys if until == cached.hot.end else cached.keys[: until - cached.hot.base]
            expires.update(cached.expires)
            size += cached.size
            if until < cached.hot.end or size >= CANDIDATE_BYTES or start + len(keys) - frontier >= want:
                break
        return Candidates(start=start, keys=keys, excluded=passed, expires=expires)

    def is_evaluated(self, pid: int, frontier: int, group: str, wanted: Filter) -> bool:
        """Return whether the filter is evaluated for the first message to offer, or is cheap to evaluate."""
        row = self.row(pid)
        start = max(frontier, row.log_start)
        number = row.at(start)
        exclusions = None if number is None else row.batches[number].exclusions(group, wanted)
        return exclusions is None or exclusions.until > start or exclusions.steps <= INLINE_STEPS

    async def evaluate(self, pid: int, frontier: int, group: str, wanted: Filter) -> None:
        """Evaluate the filter for some cached messages from the frontier on, before they are decided."""
        row = self.row(pid)
        number = row.at(max(frontier, row.log_start))
        if number is not None:
            found = (cached.exclusions(group, wanted) for cached in row.batches[number : number + EVALUATE_BATCHES])
            await self._evaluator.evaluate(filter(None, found))

    async def pieces(self, topic: Topic, partition: int, offsets: Sequence[int]) -> list[LeasedBatch]:
        """Return the batches that hold these offsets (ascending), without those that retention deleted."""
        row = self._row_of(topic, partition)
        found: list[LeasedBatch] = []
        at = 0
        while at < len(offsets):
            cached = await self._cached_batch(row, topic, partition, offsets[at])
            if cached is None:
                at = max(at + 1, bisect_left(offsets, row.log_start, at))
                continue
            last = bisect_left(offsets, cached.hot.end, at)
            found.append(LeasedBatch(cached=cached, offsets=offsets[at:last]))
            at = last
        return found

    async def _cached_batch(
        self, row: CachedPartition, topic: Topic, partition: int, offset: int
    ) -> CachedBatch | None:
        number = row.at(offset)
        if number is not None:
            self._kept.move_to_end(row.batches[number])
            return row.batches[number]
        store = self._cells[topic.cells[partition]]
        try:
            read = await self._extents.read(store, topic.pid(partition), offset, max_messages=1, max_bytes=1)
        except OffsetOutOfRange:
            await self.look(topic, [partition])
            return None
        if read is None:
            return None
        if self._rows.get(topic.pid(partition)) is not row:
            raise Unavailable("The data of the partition's cell was replaced while it was read; try again.")
        # Redelivered messages come batch by batch: their neighbours are needed next.
        self._add(row, partition, read.batches)
        self._make_room(len(read.batches))
        number = row.at(offset)
        return row.batches[number] if number is not None else None

    async def _read(self, topic: Topic, offsets: Mapping[int, int]) -> dict[int, LakelogError]:
        # The count before the read: the reply may lack what is announced during it.
        rows = {row: row.growths for row in (self._row_of(topic, partition) for partition in offsets)}
        # Many partitions at once usually have little each, and must not fill the memory if they have much.
        size = READ_BYTES if len(offsets) == 1 else READ_TOGETHER_BYTES
        store = self._cells[topic.cells[next(iter(offsets))]]
        asks = [(topic.pid(partition), offset) for partition, offset in offsets.items()]
        reads = await self._read_each(store, asks, size)
        failed: dict[int, LakelogError] = {}
        for partition, (row, growths), read in zip(offsets, rows.items(), reads, strict=True):
            if self._rows.get(topic.pid(partition)) is not row:
                continue
            try:
                await self._keep(topic, partition, read, growths)
            except Exception as error:
                failed[partition] = as_error(error)
        # All that was read stays until the decision, whatever its size.
        self._make_room(sum(len(read.batches) for read in reads if isinstance(read, ReadResult)))
        return failed

    async def _read_each(self, store: PartitionStore, asks: _Asks, size: int) -> list[ReadResult | LakelogError | None]:
        """Read all partitions together.

        If that fails, read them one by one, so that one partition does not fail the others.
        """
        try:
            return await self._extents.read_many(store, asks, max_messages=READ_MESSAGES, max_bytes=size)
        except Exception as error:
            found = as_error(error)
            if not concerns_one_partition(found):
                raise
            if len(asks) == 1:
                return [found]
        return [read for ask in asks for read in await self._read_each(store, [ask], size)]

    async def _keep(self, topic: Topic, partition: int, read: ReadResult | LakelogError | None, growths: int) -> None:
        if isinstance(read, OffsetOutOfRange):
            await self.look(topic, [partition])
        elif isinstance(read, LakelogError):
            raise read
        elif read is None or read.head.state is HeadState.DELETED:
            raise _gone(topic)
        else:
            row = self.row(topic.pid(partition))
            self._add(row, partition, read.batches)
            row.saw(read.head, growths)

    def _add(self, row: CachedPartition, partition: int, batches: Sequence[HotBatch]) -> None:
        for hot in batches:
            known = row.at(hot.base)
            if known is not None and row.batches[known].hot.end >= hot.end:
                self._kept.move_to_end(row.batches[known])
                continue
            self._displace(row, hot)
            cached = CachedBatch(hot, partition)
            insort(row.batches, cached, key=_base)
            self._kept[cached] = row
            self._size += cached.size

    def _make_room(self, keep: int) -> None:
        """Evict the least recently used batches. The lowest offsets may be in use, by a group that is far behind."""
        while self._size > KEEP_BYTES and len(self._kept) > keep:
            gone, its = next(iter(self._kept.items()))
            at = bisect_left(its.batches, gone.hot.base, key=_base)
            self._forget(its, at, at + 1)

    def _displace(self, row: CachedPartition, hot: HotBatch) -> None:
        """Remove overlapping batches: a segment may split messages into other batches than the hot table."""
        first = bisect_right(row.batches, hot.base, key=_end)
        self._forget(row, first, bisect_left(row.batches, hot.end, key=_base))

    def _forget(self, row: CachedPartition, first: int, end: int) -> None:
        for gone in row.batches[first:end]:
            self._size -= gone.size
            del self._kept[gone]
        del row.batches[first:end]


def _gone(topic: Topic) -> TopicNotFound:
    return TopicNotFound(f"Topic '{topic.name}' was deleted; create it with `lakelog topics create`.", topic=topic.name)
