"""Staged messages in memory: the decisions of a `MemoryCatalog`, and the staged batches of a `MemoryStore`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lakelog.model.message import PARTITION_BITS
from lakelog.model.topic import Topic
from lakelog.model.write import WriteKind, writer_of
from lakelog.storage.memory.clock import Clock
from lakelog.storage.staging import (
    DECISION_MEMORY,
    MARK_MEMORY,
    NEWEST_DECISION_MEMORY,
    Promoted,
    PromoteStatus,
    StagedBatch,
    StagedPart,
    StagedWrite,
    WriteDecision,
)
from lakelog.storage.store import Append, Appended, Head, HeadState, Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedDecision:
    """A decision, and when its write was promoted completely."""

    decision: WriteDecision
    writer: tuple[str, int]
    """The query and the number of its micro-batch; the write id and 0 for a batch write."""
    finished_at: datetime | None = None


class MemoryWriteCatalog:
    """The `writes` of a `MemoryCatalog`, which provides the open topic of an incarnation."""

    def __init__(self, clock: Clock, open_topic: Callable[[int], Topic | None]) -> None:
        self._clock = clock
        self._open_topic = open_topic
        self._made: dict[tuple[int, str], _RecordedDecision] = {}

    async def decide(
        self, decision: WriteDecision, epoch: int, kind: WriteKind = WriteKind.BATCH
    ) -> WriteDecision | None:
        await asyncio.sleep(0)
        place = (decision.incarnation, decision.write_id)
        topic = self._open_topic(decision.incarnation)
        if place not in self._made and topic is not None and topic.epoch == epoch:
            writer = writer_of(decision.write_id, kind)
            self._made[place] = _RecordedDecision(decision=decision, writer=writer)
        return self._find(*place)

    async def abandon(self, incarnation: int, write_id: str) -> WriteDecision:
        await asyncio.sleep(0)
        empty = WriteDecision(incarnation=incarnation, write_id=write_id, attempts=(), attempts_hash=b"", count=0)
        made = _RecordedDecision(decision=empty, writer=(write_id, 0))
        return self._made.setdefault((incarnation, write_id), made).decision

    async def find(self, incarnation: int, write_id: str) -> WriteDecision | None:
        await asyncio.sleep(0)
        return self._find(incarnation, write_id)

    async def finish(self, incarnation: int, write_id: str) -> None:
        await asyncio.sleep(0)
        made = self._made.get((incarnation, write_id))
        if made is not None and made.finished_at is None:
            done = replace(made.decision, attempts=(), finished=True)
            self._made[incarnation, write_id] = replace(made, decision=done, finished_at=self._clock())

    async def trim(self, memory: timedelta = DECISION_MEMORY, newest_memory: timedelta = NEWEST_DECISION_MEMORY) -> int:
        await asyncio.sleep(0)
        newest: dict[tuple[int, str], int] = {}
        for (incarnation, _), made in self._made.items():
            writer, number = made.writer
            newest[incarnation, writer] = max(number, newest.get((incarnation, writer), 0))
        now = self._clock()
        doomed = [
            (incarnation, write_id)
            for (incarnation, write_id), made in self._made.items()
            if made.finished_at is not None
            and made.finished_at < now - memory
            and (
                self._open_topic(incarnation) is None
                or made.finished_at < now - newest_memory
                or made.writer[1] < newest[incarnation, made.writer[0]]
            )
        ]
        for place in doomed:
            del self._made[place]
        return len(doomed)

    def _find(self, incarnation: int, write_id: str) -> WriteDecision | None:
        made = self._made.get((incarnation, write_id))
        return made.decision if made is not None else None


class MemoryStaging:
    """The `staging` of a `MemoryStore`, which provides the head of a partition and the append."""

    def __init__(
        self,
        clock: Clock,
        head: Callable[[int], Head | None],
        is_deleted: Callable[[int], bool],
        append: Callable[[Append], Appended | Refused],
    ) -> None:
        self._clock = clock
        self._head = head
        self._is_deleted = is_deleted
        self._append = append
        self._staged: dict[tuple[int, str], dict[tuple[str, int], tuple[StagedBatch, datetime]]] = {}
        self._marks: dict[tuple[int, str], Promoted] = {}

    async def stage(self, batches: Sequence[StagedBatch]) -> None:
        await asyncio.sleep(0)
        now = self._clock()
        for batch in batches:
            rows = self._staged.setdefault((batch.pid, batch.write_id), {})
            rows.setdefault((batch.attempt, batch.number), (batch, now))

    async def staged_count(self, pids: Sequence[int], write_id: str, attempts: Sequence[str]) -> int:
        await asyncio.sleep(0)
        return sum(
            batch.payload.count
            for pid in pids
            for (attempt, _), (batch, _) in self._staged.get((pid, write_id), {}).items()
            if attempt in attempts
        )

    async def staged_pids(self, incarnation: int, write_id: str) -> list[int]:
        await asyncio.sleep(0)
        return sorted(pid for pid, name in self._staged if name == write_id and pid >> PARTITION_BITS == incarnation)

    async def staged_parts(self, incarnation: int, write_id: str) -> list[StagedPart]:
        await asyncio.sleep(0)
        counts: Counter[tuple[int, str]] = Counter()
        for (pid, name), rows in self._staged.items():
            if name == write_id and pid >> PARTITION_BITS == incarnation:
                for (attempt, _), (batch, _) in rows.items():
                    counts[pid, attempt] += batch.payload.count
        return [StagedPart(pid=pid, attempt=attempt, count=counts[pid, attempt]) for pid, attempt in sorted(counts)]

    async def staged_read(
        self, pid: int, write_id: str, attempt: str, *, after: int, limit_bytes: int
    ) -> list[StagedBatch]:
        await asyncio.sleep(0)
        rows = self._staged.get((pid, write_id), {})
        found: list[StagedBatch] = []
        size = 0
        for number in sorted(number for name, number in rows if name == attempt and number > after):
            batch, _ = rows[attempt, number]
            size += len(batch.payload.data)
            if found and size > limit_bytes:
                break
            found.append(batch)
        return found

    async def promote(self, pid: int, write_id: str, attempts: Sequence[str]) -> Promoted:
        await asyncio.sleep(0)
        head = self._head(pid)
        is_deleted = self._is_deleted(pid)
        if head is None and not is_deleted:
            return Promoted(status=PromoteStatus.MISSING)
        if head is not None and head.state is HeadState.SEALED:
            return Promoted(status=PromoteStatus.SEALED)
        rows = self._staged.pop((pid, write_id), {})
        mark = self._marks.get((pid, write_id))
        if head is None or is_deleted:
            return replace(mark or Promoted(status=PromoteStatus.DELETED), status=PromoteStatus.DELETED)
        order = {attempt: part for part, attempt in enumerate(attempts)}
        won = sorted((order[attempt], number) for attempt, number in rows if attempt in order)
        if mark is None and won:
            payloads = [rows[attempts[part], number][0].payload for part, number in won]
            append = Append(pid=pid, epoch=head.epoch, payloads=payloads)
            answer = self._append(append)
            assert isinstance(answer, Appended), "the head is open, and the epoch its own"
            mark = Promoted(
                status=PromoteStatus.DONE, base=answer.base, count=append.count, appended_at=answer.appended_at
            )
            self._marks[pid, write_id] = mark
        return mark or Promoted(status=PromoteStatus.DONE)

    async def staged_writes(self, older_than: timedelta, *, limit: int = 1000) -> list[StagedWrite]:
        await asyncio.sleep(0)
        newest: dict[tuple[int, str], datetime] = {}
        for (pid, write_id), rows in self._staged.items():
            place = (pid >> PARTITION_BITS, write_id)
            times = [at for _, at in rows.values()]
            newest[place] = max([*times, newest[place]] if place in newest else times)
        now = self._clock()
        found = [
            StagedWrite(incarnation=incarnation, write_id=write_id, age=now - at)
            for (incarnation, write_id), at in newest.items()
            if now - at >= older_than
        ]
        return sorted(found, key=lambda write: write.age, reverse=True)[:limit]

    async def promoted_trim(self, memory: timedelta = MARK_MEMORY) -> int:
        await asyncio.sleep(0)
        limit = self._clock() - memory
        doomed = [place for place, mark in self._marks.items() if mark.appended_at and mark.appended_at < limit]
        for place in doomed:
            del self._marks[place]
        return len(doomed)
