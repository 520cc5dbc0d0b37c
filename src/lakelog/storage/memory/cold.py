"""Cold segments in memory: the registered segments of a `MemoryStore`, and the orphans of a `MemoryCatalog`."""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from lakelog.model.backup import BackupMark
from lakelog.model.lake import Registered, RegisterStatus, TierRange
from lakelog.model.load import Loaded, LoadStatus, PartitionLoad
from lakelog.model.message import partition_of_id
from lakelog.model.segment import Segment
from lakelog.storage.cold import MAX_RANGES, REASONS, ColdPlan, ColdPlanRequest, Placed, PlacedLoad, taken
from lakelog.storage.memory.clock import Clock
from lakelog.storage.memory.partition_record import PartitionRecord
from lakelog.storage.store import Head, HeadState, HotBatch


@dataclass(slots=True, kw_only=True)
class StoredSegment:
    """A registered segment. `bytes_end` has the same meaning as in a hot batch."""

    segment: Segment
    bytes_end: int
    verified_at: datetime | None = None


def _end(stored: StoredSegment) -> int:
    return stored.segment.end


def _day(time: datetime) -> date:
    return time.astimezone(UTC).date()


class MemoryCold:
    """A `ColdStore` in memory. The `MemoryStore` provides heads and hot batches."""

    def __init__(
        self,
        clock: Clock,
        record: Callable[[int], PartitionRecord | None],
        batch_at: Callable[[int, int], HotBatch | None],
        offset_at_time: Callable[[int, datetime], int],
    ) -> None:
        self._clock = clock
        self._record = record
        self._batch_at = batch_at
        self._offset_at_time = offset_at_time
        self._segments: dict[int, list[StoredSegment]] = {}
        self._loaded: dict[tuple[int, str], Loaded] = {}

    def _head(self, pid: int) -> Head | None:
        record = self._record(pid)
        return None if record is None else record.head

    # For the store ----------------------------------------------------------------------------------------------------

    def at(self, pid: int, offset: int) -> StoredSegment | None:
        """Return the verified segment that holds the offset."""
        found = self._behind(pid, offset)
        is_it = found is not None and found.segment.first <= offset and found.verified_at is not None
        return found if is_it else None

    def has_segments(self, pid: int) -> bool:
        return bool(self._segments.get(pid))

    def holds(self, pid: int, low: int, high: int, grace: timedelta) -> bool:
        """Return whether segments that were verified at least `grace` ago hold everything from `low` up to `high`."""
        latest = self._clock() - grace
        while low < high:
            found = self.at(pid, low)
            if found is None or found.verified_at is None or found.verified_at > latest:
                return False
            low = found.segment.end
        return True

    # The protocol -----------------------------------------------------------------------------------------------------

    async def plans(self, asks: Sequence[ColdPlanRequest], *, limit: int | None = None) -> list[ColdPlan]:
        await asyncio.sleep(0)
        found = []
        for ask in sorted(asks, key=lambda ask: ask.pid):
            head = self._head(ask.pid)
            if head is not None:
                low, high = max(ask.start, head.log_start), head.next_offset if ask.end is None else ask.end
                segments = [
                    each.segment
                    for each in self._segments.get(ask.pid, ())
                    if each.verified_at is not None and each.segment.end > low and each.segment.first < high
                ]
                found.append(ColdPlan(head=head, segments=segments[:limit]))
        return found

    async def search_time(self, pid: int, time: datetime) -> tuple[int, Segment | None]:
        await asyncio.sleep(0)
        offset = self._offset_at_time(pid, time)
        found = self.at(pid, offset)
        if found is None or not found.segment.first_at < time <= found.segment.last_at:
            return offset, None
        return offset, found.segment

    async def tierable(
        self, pids: Sequence[int], *, segment_bytes: int, min_bytes: int, min_age: timedelta
    ) -> list[tuple[int, TierRange]]:
        await asyncio.sleep(0)
        found: list[tuple[int, TierRange]] = []
        for pid in sorted(pids):
            head = self._head(pid)
            if head is not None and head.state is not HeadState.DELETED:
                ranges = self._ranges(head, segment_bytes, min_bytes, self._clock() - min_age)
                found += [(pid, each) for each, _ in zip(ranges, range(MAX_RANGES), strict=False)]
        return found

    async def register(self, segments: Sequence[Placed]) -> list[Registered]:
        await asyncio.sleep(0)
        answers: dict[int, Registered] = {}
        for part in sorted(range(len(segments)), key=lambda part: (segments[part][0], segments[part][1].first)):
            answers[part] = self._register(*segments[part])
        return [answers[part] for part in range(len(segments))]

    async def replace(self, pid: int, old: Sequence[Segment], new: Sequence[Segment]) -> Registered:
        await asyncio.sleep(0)
        if all(self._same(pid, each) is not None for each in new):
            return Registered(status=RegisterStatus.KNOWN)
        head = self._head(pid)
        if head is None:
            return taken("missing")
        found = [self._same(pid, each) for each in old]
        refusals = {
            "deleted": head.state is HeadState.DELETED,
            "below": new[-1].end <= head.log_start,
            "replaced": not all(
                stored is not None and stored.verified_at and stored.segment.content_hash == each.content_hash
                for stored, each in zip(found, old, strict=True)
            ),
            "path": any(each.path in self._paths() for each in new),
        }
        for reason, applies in refusals.items():
            if applies:
                return taken(reason)
        self._put_in_place([stored for stored in found if stored is not None], pid, new)
        return Registered(status=RegisterStatus.REGISTERED)

    async def verified(self, segments: Sequence[Placed]) -> list[bool]:
        await asyncio.sleep(0)
        answers = []
        for pid, segment in segments:
            stored = self._same(pid, segment)
            if stored is not None:
                stored.verified_at = stored.verified_at or self._clock()
            answers.append(stored is not None)
        return answers

    async def unregister(self, segments: Sequence[Placed]) -> list[bool]:
        await asyncio.sleep(0)
        answers = []
        for pid, segment in segments:
            stored = self._same(pid, segment)
            if stored is not None and stored.verified_at is None:
                self._segments[pid].remove(stored)
            answers.append(stored is None or stored.verified_at is None)
        return answers

    async def unverified(self, pids: Sequence[int]) -> list[Placed]:
        await asyncio.sleep(0)
        return [
            (pid, each.segment)
            for pid in sorted(pids)
            for each in self._segments.get(pid, ())
            if each.verified_at is None
        ]

    async def paths_known(self, paths: Collection[str]) -> set[str]:
        await asyncio.sleep(0)
        return self._paths() & set(paths)

    async def load(self, name: str, parts: Sequence[PlacedLoad]) -> list[Loaded]:
        await asyncio.sleep(0)
        return [self._load(name, pid, part) for pid, part in parts]

    async def loaded(self, name: str, pids: Sequence[int]) -> list[Loaded]:
        await asyncio.sleep(0)
        return [self._loaded[pid, name] for pid in sorted(pids) if (pid, name) in self._loaded]

    async def trim(self) -> int:
        await asyncio.sleep(0)
        trimmed = 0
        for pid, stored in self._segments.items():
            head = self._head(pid)
            kept = [each for each in stored if head is not None and each.segment.end > head.log_start]
            trimmed += len(stored) - len(kept)
            stored[:] = kept
        return trimmed

    def _behind(self, pid: int, offset: int) -> StoredSegment | None:
        """Return the first segment that ends after the offset."""
        stored = self._segments.get(pid, [])
        number = bisect_right(stored, offset, key=_end)
        return stored[number] if number < len(stored) else None

    def _same(self, pid: int, segment: Segment) -> StoredSegment | None:
        stored = self._behind(pid, segment.first)
        if stored is None:
            return None
        mine = (stored.segment.first, stored.segment.end, stored.segment.path)
        return stored if mine == (segment.first, segment.end, segment.path) else None

    def _paths(self) -> set[str]:
        return {each.segment.path for stored in self._segments.values() for each in stored}

    def _register(self, pid: int, segment: Segment) -> Registered:
        if self._same(pid, segment) is not None:
            return Registered(status=RegisterStatus.KNOWN)
        head, over = self._head(pid), self._behind(pid, segment.first)
        before = any(each.segment.end == segment.first for each in self._segments.get(pid, ()))
        batch = self._batch_at(pid, segment.end - 1)
        if head is None:
            return taken("missing")
        refusals = {
            "deleted": head.state is HeadState.DELETED,
            "below": segment.end <= head.log_start,
            "beyond": segment.end > head.next_offset,
            "overlap": over is not None and over.segment.first < segment.end,
            "gap": segment.first > head.log_start and not before,
            "boundary": batch is None or batch.end != segment.end,
            "other": batch is not None and (batch.epoch, batch.appended_at) != (segment.epoch, segment.last_at),
            "path": segment.path in self._paths(),
        }
        for reason, applies in refusals.items():
            if applies:
                return taken(reason)
        assert batch is not None
        insort(self._segments.setdefault(pid, []), StoredSegment(segment=segment, bytes_end=batch.bytes_end), key=_end)
        return Registered(status=RegisterStatus.REGISTERED)

    def _load(self, name: str, pid: int, part: PartitionLoad) -> Loaded:
        if (known := self._loaded.get((pid, name))) is not None:
            return known
        record, segments = self._record(pid), part.segments
        reason = self._load_refusal(None if record is None else record.head, part)
        next_offset = 0 if record is None else record.head.next_offset
        status = LoadStatus.MOVED if reason == "moved" else LoadStatus.REFUSED
        answer = Loaded(
            partition=part.partition,
            status=LoadStatus.LOADED if reason is None else status,
            first=next_offset,
            end=segments[-1].end if segments else next_offset,
            fingerprint=part.fingerprint,
            reason=None if reason is None else REASONS[reason],
        )
        if reason is None and record is not None:
            self._loaded[pid, name] = replace(answer, status=LoadStatus.KNOWN)
            if segments:
                self._append(record, segments)
        return answer

    def _append(self, record: PartitionRecord, segments: Sequence[Segment]) -> None:
        """Store verified segments behind the log of a partition, and write its head."""
        head, now = record.head, self._clock()
        total = head.total_bytes
        for each in segments:
            total += each.bytes
            stored = StoredSegment(segment=each, bytes_end=total, verified_at=now)
            insort(self._segments.setdefault(head.pid, []), stored, key=_end)
        record.write_head(
            next_offset=segments[-1].end,
            total_bytes=total,
            appended_at=max(head.appended_at, segments[-1].last_at),
            roll=0,
            epoch=max(head.epoch, segments[-1].epoch),
        )

    def _load_refusal(self, head: Head | None, part: PartitionLoad) -> str | None:
        if head is None:
            return "missing"
        if head.state is not HeadState.OPEN:
            return "deleted" if head.state is HeadState.DELETED else "sealed"
        if not part.segments:
            return None
        newest = None
        if head.log_start < head.next_offset:
            last = next((s for s in self._segments.get(head.pid, ()) if s.segment.end == head.next_offset), None)
            newest = head.appended_at if last is None else last.segment.last_at
        first, last_at = part.segments[0], max(each.last_at for each in part.segments)
        refusals = {
            "epoch": min(each.epoch for each in part.segments) < head.epoch,
            "moved": head.next_offset != part.first,
            "earlier": newest is not None and first.first_at < newest,
            "later": last_at > max(head.appended_at, self._clock()),
            "path": bool(self._paths() & {each.path for each in part.segments}),
        }
        return next((reason for reason, applies in refusals.items() if applies), None)

    def _put_in_place(self, old: Sequence[StoredSegment], pid: int, new: Sequence[Segment]) -> None:
        stored = self._segments[pid]
        for each in old:
            stored.remove(each)
        for segment in new:
            # A file that ends within an old one counts the bytes of the whole old one, as on PostgreSQL.
            bytes_end = next(each.bytes_end for each in old if each.segment.end >= segment.end)
            insort(stored, StoredSegment(segment=segment, bytes_end=bytes_end, verified_at=self._clock()), key=_end)

    def _ranges(self, head: Head, segment_bytes: int, min_bytes: int, old: datetime) -> Iterator[TierRange]:
        start = head.log_start
        while (over := self._behind(head.pid, start)) is not None and over.segment.first <= start:
            start = over.segment.end
        limit = head.next_offset if over is None else over.segment.first
        while start < limit:
            first = self._batch_at(head.pid, start)
            assert first is not None
            base, begin, batch = max(first.base, head.log_start), first.bytes_end - len(first.payload), first
            is_day_over = False
            while batch.end < limit and batch.bytes_end - begin < segment_bytes and not is_day_over:
                following = self._batch_at(head.pid, batch.end)
                assert following is not None
                is_day_over = _day(following.appended_at) > _day(first.appended_at)
                batch = batch if is_day_over else following
            size = batch.bytes_end - begin
            if over is None and not is_day_over and size < min(segment_bytes, min_bytes) and first.appended_at > old:
                return
            yield TierRange(partition=partition_of_id(head.pid), first=base, end=batch.end, bytes=size)
            start = batch.end


class MemoryOrphans:
    """An `OrphanCatalog` in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, datetime] = {}
        self._marks: dict[str, BackupMark] = {}

    async def look(self, paths: Collection[str], *, min_age: timedelta) -> set[str]:
        await asyncio.sleep(0)
        now = self._clock()
        marks = [mark.at for mark in self._marks.values() if mark.until > now]
        found = {path for path in await self.old(paths, age=min_age) if all(self._seen[path] < mark for mark in marks)}
        for path in paths:
            self._seen.setdefault(path, now)
        return found

    async def old(self, paths: Collection[str], *, age: timedelta) -> set[str]:
        await asyncio.sleep(0)
        now = self._clock()
        return {path for path in paths if path in self._seen and self._seen[path] <= now - age}

    async def forget(self, paths: Collection[str]) -> None:
        await asyncio.sleep(0)
        for path in paths:
            self._seen.pop(path, None)

    async def backup_mark(self, name: str, keep: timedelta) -> BackupMark | None:
        await asyncio.sleep(0)
        now = self._clock()
        if name in self._marks and self._marks[name].until > now:
            return None
        self._marks[name] = BackupMark(name=name, at=now, until=now + keep)
        return self._marks[name]

    async def backup_marks(self) -> list[BackupMark]:
        await asyncio.sleep(0)
        found = (mark for mark in self._marks.values() if mark.until > self._clock())
        return sorted(found, key=lambda mark: (mark.at, mark.name))

    async def backup_mark_end(self, name: str) -> bool:
        await asyncio.sleep(0)
        return self._marks.pop(name, None) is not None
