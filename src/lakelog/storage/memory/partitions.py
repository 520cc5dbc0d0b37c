"""A `PartitionStore` in memory. Its `GroupStore` is in `groups`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from lakelog.errors import OffsetOutOfRange
from lakelog.model.message import PARTITION_BITS
from lakelog.storage.changes import ChangedRows, KnownRows
from lakelog.storage.compaction import ROLL_BYTES, ActiveRoll, Compaction, RollCounts
from lakelog.storage.failover import Durability
from lakelog.storage.memory.clock import Clock, milliseconds, utcnow
from lakelog.storage.memory.cold import MemoryCold, StoredSegment
from lakelog.storage.memory.elections import MemoryElections
from lakelog.storage.memory.groups import MemoryGroups
from lakelog.storage.memory.hot_tables import HotTables
from lakelog.storage.memory.listener import MemoryAnnouncements
from lakelog.storage.memory.partition_record import PartitionRecord, ProducerRecord, judge_keyed, judge_sequenced
from lakelog.storage.memory.relays import MemoryRelays
from lakelog.storage.memory.scheduled import MemoryScheduled
from lakelog.storage.memory.staging import MemoryStaging
from lakelog.storage.memory.timelines import MemoryTimelines
from lakelog.storage.store import (
    DELETED_MEMORY,
    PRODUCER_BATCHES,
    RESERVATION_GRACE,
    TIER_GRACE,
    Append,
    Appended,
    Head,
    HeadState,
    HotBatch,
    ReadResult,
    Refusal,
    Refused,
    Reservation,
    Trimmed,
)


class MemoryStore(MemoryAnnouncements):
    """A `PartitionStore` in memory, with one dict of batches per roll, like the hot tables of PostgreSQL."""

    def __init__(self, clock: Clock = utcnow) -> None:
        super().__init__()
        self._clock = clock
        self._groups = MemoryGroups(clock, self._is_deleted, self._append_one)
        self._elections = MemoryElections(clock)
        self._staging = MemoryStaging(clock, self._head, self._is_deleted, self._append_one)
        self._partitions: dict[int, PartitionRecord] = {}
        self._cold = MemoryCold(clock, self._partitions.get, self._batch_at, self._offset_at_time)
        self.scheduled = MemoryScheduled(clock, self._partitions.get, self._append_one)
        self._deleted: dict[int, datetime] = {}
        self._closed: set[int] = set()
        """Incarnations of topics whose partitions were removed."""
        self._reservations: dict[tuple[int, bytes], tuple[Reservation, datetime]] = {}
        """The reservation of each incarnation and key, and when it expires."""
        self._hot = HotTables(clock())
        self.relays = MemoryRelays(clock, self._append_one)
        self.timelines = MemoryTimelines()

    @property
    def groups(self) -> MemoryGroups:
        return self._groups

    @property
    def cold(self) -> MemoryCold:
        return self._cold

    @property
    def staging(self) -> MemoryStaging:
        return self._staging

    @property
    def elections(self) -> MemoryElections:
        return self._elections

    async def heads_create(self, pids: Sequence[int], epoch: int) -> None:
        await asyncio.sleep(0)
        for pid in pids:
            if pid not in self._partitions and pid >> PARTITION_BITS not in self._closed:
                self._partitions[pid] = self._new_partition(pid, epoch, HeadState.OPEN)

    async def heads_read(self, pids: Sequence[int]) -> list[Head]:
        await asyncio.sleep(0)
        return [self._partitions[pid].head for pid in sorted(set(pids)) if pid in self._partitions]

    async def heads_close(self, pids: Sequence[int], state: HeadState) -> None:
        await asyncio.sleep(0)
        for pid in pids:
            partition = self._partitions.get(pid)
            if partition is None:
                if state is HeadState.DELETED and pid >> PARTITION_BITS not in self._closed:
                    # A create that arrives after this delete must find the head, deleted.
                    self._partitions[pid] = self._new_partition(pid, 0, state)
                    self._deleted[pid] = self._clock()
            elif partition.head.state < state:
                head = partition.head
                log_start = head.next_offset if state is HeadState.DELETED else head.log_start
                partition.write_head(state=state, log_start=log_start)
                if state is HeadState.DELETED:
                    self._deleted[pid] = self._clock()

    async def epoch_raise(self, pids: Sequence[int], epoch: int) -> None:
        await asyncio.sleep(0)
        for pid in pids:
            partition = self._partitions.get(pid)
            if partition is not None and partition.head.epoch < epoch:
                partition.write_head(epoch=epoch)

    async def log_start_raise(self, starts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        await asyncio.sleep(0)
        known = sorted((pid, offset) for pid, offset in starts if pid in self._partitions)
        return [(pid, self._raise_log_start(self._partitions[pid], offset)) for pid, offset in known]

    async def append(self, appends: Sequence[Append]) -> list[Appended | Refused]:
        await asyncio.sleep(0)
        return [self._append_one(append) for append in appends]

    async def reserve(self, reservations: Sequence[Reservation], *, durable: bool) -> list[Reservation]:
        await asyncio.sleep(0)
        return [self._reserve(new) for new in reservations]

    async def read(self, pid: int, offset: int, *, max_messages: int, max_bytes: int) -> ReadResult | None:
        await asyncio.sleep(0)
        partition = self._partitions.get(pid)
        if partition is None:
            return None
        head = partition.head
        if (refusal := head.out_of_range(offset)) is not None:
            raise refusal
        # Read one roll per call, like PostgreSQL: callers must handle a short result that is not the end of the log.
        if not self._hot.is_active(pid, offset) and (stored := self._cold.at(pid, offset)) is not None:
            return ReadResult(head=head, batches=(), segment=stored.segment)
        return ReadResult(head=head, batches=_up_to(self._hot.read(pid, offset), max_messages, max_bytes))

    async def read_many(
        self, asks: Sequence[tuple[int, int]], *, max_messages: int, max_bytes: int
    ) -> list[ReadResult | OffsetOutOfRange | None]:
        found: list[ReadResult | OffsetOutOfRange | None] = []
        for pid, offset in asks:
            try:
                found.append(await self.read(pid, offset, max_messages=max_messages, max_bytes=max_bytes))
            except OffsetOutOfRange as refusal:
                found.append(refusal)
        return found

    async def append_times(self, asks: Sequence[tuple[int, int]]) -> list[datetime | None]:
        await asyncio.sleep(0)
        return [self._append_time(pid, offset) for pid, offset in asks]

    async def offset_at_time(self, pid: int, time: datetime) -> int:
        await asyncio.sleep(0)
        return self._offset_at_time(pid, time)

    async def offset_at_bytes(self, pid: int, max_bytes: int) -> int:
        await asyncio.sleep(0)
        return self._first_offset(
            pid,
            lambda head, batch: head.total_bytes - batch.bytes_end + len(batch.payload) <= max_bytes,
            lambda head, stored: head.total_bytes - stored.bytes_end < max_bytes,
        )

    async def roll(self, expected: int | None = None) -> int:
        await asyncio.sleep(0)
        return self._hot.begin(self._clock(), expected)

    async def roll_active(self) -> ActiveRoll:
        await asyncio.sleep(0)
        return self._hot.describe_active()

    async def rolls_drop(self, *, grace: timedelta = TIER_GRACE) -> list[int]:
        await asyncio.sleep(0)
        return self._hot.drop(partial(self._is_retired, grace))

    async def rolls_count(self, *, grace: timedelta = TIER_GRACE) -> RollCounts:
        await asyncio.sleep(0)
        return self._hot.count(partial(self._is_retired, grace))

    async def rolls_compact(
        self, after: int = 0, *, table_bytes: int = ROLL_BYTES, grace: timedelta = TIER_GRACE
    ) -> Compaction:
        await asyncio.sleep(0)
        return Compaction(last=None, bytes=self._hot.compact(after, table_bytes, partial(self._is_retired, grace)))

    async def trim(self, incarnation_memory: dict[int, timedelta]) -> Trimmed:
        await asyncio.sleep(0)
        now, heads, producers = self._clock(), 0, 0
        over = [key for key, (_, expires_at) in self._reservations.items() if expires_at <= now]
        for key in over:
            del self._reservations[key]
        keys = len(over)
        for partition in self._partitions.values():
            heads += partition.head.version - partition.oldest_version
            partition.oldest_version = partition.head.version
            old = [name for name in partition.producers if partition.producer_at(name, now) is None]
            for name in old:
                del partition.producers[name]
            producers += len(old)
            used = [name for name, (_, expires_at) in partition.keys.items() if expires_at <= now]
            for name in used:
                del partition.keys[name]
            keys += len(used)
        return Trimmed(heads=heads, producers=producers, keys=keys)

    async def partitions_remove(self, *, memory: timedelta = DELETED_MEMORY) -> int:
        await asyncio.sleep(0)
        limit = self._clock() - memory
        doomed = [pid for pid, at in self._deleted.items() if at <= limit and not self._cold.has_segments(pid)]
        for pid in doomed:
            del self._deleted[pid], self._partitions[pid]
            self._closed.add(pid >> PARTITION_BITS)
        return len(doomed)

    async def clock(self) -> datetime:
        await asyncio.sleep(0)
        return self._clock()

    async def durability(self) -> Durability:
        await asyncio.sleep(0)
        return Durability(weak=("memory store",), synchronous_standby=True, timeline=1)

    @property
    def timeline(self) -> int:
        return self.timelines.number

    def on_replaced(self, call: Callable[[], None]) -> None:
        self.timelines.followers.append(call)

    def promoted(self) -> None:
        """Report that the data was replaced, as after the promotion of a standby."""
        self.timelines.began({pid: record.head.next_offset for pid, record in self._partitions.items()})

    async def check(self) -> None:
        await asyncio.sleep(0)

    async def changes_read(self, known: KnownRows) -> ChangedRows:
        await asyncio.sleep(0)
        heads = {pid: (head.log_start, head.next_offset) for pid in known.heads if (head := self._head(pid))}
        return ChangedRows(
            heads={pid: ends for pid, ends in heads.items() if ends != known.heads[pid]},
            journals=self._groups.changed_journals(known),
            members=self._groups.changed_members(known),
            clock_ms=milliseconds(self._clock()),
        )

    async def close(self) -> None:
        """Do nothing: other users of the object continue."""

    def _head(self, pid: int) -> Head | None:
        return self._partitions[pid].head if pid in self._partitions else None

    def _is_deleted(self, pid: int) -> bool:
        if pid in self._partitions:
            return self._partitions[pid].head.state is HeadState.DELETED
        return pid >> PARTITION_BITS in self._closed

    def _new_partition(self, pid: int, epoch: int, state: HeadState) -> PartitionRecord:
        return PartitionRecord(
            head=Head(
                pid=pid,
                version=1,
                next_offset=0,
                log_start=0,
                roll=0,
                state=state,
                epoch=epoch,
                appended_at=self._clock(),
                total_bytes=0,
            )
        )

    def _raise_log_start(self, partition: PartitionRecord, offset: int) -> int:
        head = partition.head
        log_start = min(offset, head.next_offset)
        if log_start <= head.log_start:
            return 0
        partition.write_head(log_start=log_start)
        return log_start - head.log_start

    def _reserve(self, new: Reservation) -> Reservation:
        key, now = (new.incarnation, new.key_hash), self._clock()
        held, expires_at = self._reservations.get(key, (new, now))
        if expires_at <= now:
            held = new
        if held.body_hash == new.body_hash:
            self._reservations[key] = (held, now + new.memory + RESERVATION_GRACE)
        return held

    def _append_one(self, append: Append) -> Appended | Refused:
        partition = self._partitions.get(append.pid)
        if partition is None:
            return Refused(pid=append.pid, refusal=Refusal.MISSING)
        head = partition.head
        if head.state is not HeadState.OPEN:
            return Refused(pid=append.pid, refusal=Refusal.CLOSED)
        # Checked before the epoch: a duplicate is in the log at whatever epoch it was appended.
        clock = self._clock()
        verdicts = [*judge_sequenced(partition, append, clock), *judge_keyed(partition, append, clock)]
        if verdicts:
            return Refused(pid=append.pid, refusal=Refusal.PARTS, verdicts=tuple(verdicts))
        if append.epoch < head.epoch:
            return Refused(pid=append.pid, refusal=Refusal.EPOCH)
        now = max(clock, head.appended_at)
        self._write(partition, append, now)
        return Appended(pid=append.pid, base=head.next_offset, appended_at=now)

    def _write(self, partition: PartitionRecord, append: Append, now: datetime) -> None:
        """Write an accepted append: its batches, producers, keys and the head."""
        base, total = partition.head.next_offset, partition.head.total_bytes
        offset = base
        rows = self._hot.tables[self._hot.active].setdefault(append.pid, [])
        for payload in append.payloads:
            total += len(payload.data)
            rows.append(
                HotBatch(
                    base=offset,
                    count=payload.count,
                    appended_at=now,
                    epoch=append.epoch,
                    bytes_end=total,
                    payload=payload.data,
                )
            )
            offset += payload.count
        for run in append.sequenced:
            seen = partition.producer_at(run.producer, now)
            recent = (*(seen.recent if seen else ()), (run.sequence, base + run.start))[-PRODUCER_BATCHES:]
            partition.producers[run.producer] = ProducerRecord(recent=recent, used_at=now)
        for message in append.keyed:
            partition.keys[message.key_hash] = (base + message.start, now + message.memory)
        # The head takes the epoch of the append: epochs never fall within a partition.
        partition.write_head(
            next_offset=offset, total_bytes=total, appended_at=now, roll=self._hot.active, epoch=append.epoch
        )

    def _append_time(self, pid: int, offset: int) -> datetime | None:
        head = self._head(pid)
        if head is None or not head.log_start <= offset < head.next_offset:
            return None
        if (stored := self._cold.at(pid, offset)) is not None:
            return stored.segment.first_at
        batch = self._batch_at(pid, offset)
        return batch.appended_at if batch is not None else None

    def _batch_at(self, pid: int, offset: int) -> HotBatch | None:
        """Return the batch that holds the offset, in any roll."""
        return next(iter(self._hot.read(pid, offset)), None)

    def _offset_at_time(self, pid: int, time: datetime) -> int:
        return self._first_offset(
            pid,
            lambda head, batch: batch.appended_at >= time,
            lambda head, stored: stored.segment.last_at >= time,
        )

    def _first_offset(
        self, pid: int, fits: Callable[[Head, HotBatch], bool], holds: Callable[[Head, StoredSegment], bool]
    ) -> int:
        """Return the first readable offset whose batch or segment fits, else the next offset; 0 without a head."""
        head = self._head(pid)
        if head is None:
            return 0
        offset = head.log_start
        while offset < head.next_offset:
            stored = self._cold.at(pid, offset)
            if stored is not None:
                if holds(head, stored):
                    break
                offset = stored.segment.end
                continue
            batch = self._batch_at(pid, offset)
            assert batch is not None, "what is in no segment is in a roll"
            if fits(head, batch):
                break
            offset = batch.end
        return offset

    def _is_retired(self, grace: timedelta, pid: int, batch: HotBatch) -> bool:
        if pid not in self._partitions:
            return True
        low = max(self._partitions[pid].head.log_start, batch.base)
        return self._cold.holds(pid, low, batch.end, grace)


def _up_to(batches: Iterable[HotBatch], max_messages: int, max_bytes: int) -> list[HotBatch]:
    """Return the batches up to the one that reaches a limit."""
    taken: list[HotBatch] = []
    messages = size = 0
    for batch in batches:
        if taken and (messages >= max_messages or size >= max_bytes):
            break
        taken.append(batch)
        messages += batch.count
        size += len(batch.payload)
    return taken
