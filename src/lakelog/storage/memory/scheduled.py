"""Scheduled messages in memory."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lakelog.storage.memory.clock import Clock
from lakelog.storage.memory.partition_record import PartitionRecord
from lakelog.storage.scheduled import (
    ENDED_MEMORY,
    FoundScheduled,
    NewScheduled,
    NextDue,
    ScheduledKey,
    ScheduledState,
    ScheduleResult,
    ScheduleStatus,
    StoredScheduled,
)
from lakelog.storage.store import Append, Appended, HeadState, Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    message: StoredScheduled
    number: int
    state: ScheduledState = ScheduledState.WAITING
    ended_at: datetime | None = None
    is_kept: bool = False
    """True if the content of a refused message is nowhere else."""


class MemoryScheduled:
    """The `scheduled` of a `MemoryStore`, which provides the partitions and the append."""

    def __init__(
        self,
        clock: Clock,
        partition: Callable[[int], PartitionRecord | None],
        append: Callable[[Append], Appended | Refused],
    ) -> None:
        self._clock = clock
        self._partition = partition
        self._append = append
        self._rows: dict[ScheduledKey, _Row] = {}

    async def schedule(self, messages: Sequence[NewScheduled], *, longest: timedelta) -> builtins.list[ScheduleResult]:
        await asyncio.sleep(0)
        now = self._clock()
        return [self._schedule(message, now, number, longest) for number, message in enumerate(messages)]

    async def next_due(self, since: datetime | None = None) -> NextDue:
        await asyncio.sleep(0)
        waiting = [row.message.due_at for row in self._waiting() if since is None or row.message.due_at >= since]
        return NextDue(now=self._clock(), due_at=min(waiting, default=None))

    async def due(self, *, since: datetime | None = None, limit: int, max_bytes: int) -> builtins.list[StoredScheduled]:
        await asyncio.sleep(0)
        now = self._clock()
        rows = [
            row
            for row in self._waiting()
            if row.message.due_at <= now and (since is None or row.message.due_at >= since)
        ]
        rows.sort(key=lambda row: (row.message.due_at, row.message.scheduled_at, row.number))
        found: builtins.list[StoredScheduled] = []
        size = 0
        for row in rows[:limit]:
            if size >= max_bytes:
                break
            found.append(row.message)
            size += len(row.message.payload)
        return found

    async def deliver(
        self, appends: Sequence[Append]
    ) -> tuple[builtins.list[Appended | Refused], builtins.list[ScheduledKey]]:
        await asyncio.sleep(0)
        now = self._clock()
        keys = [[ScheduledKey(pid=append.pid, mark=each.key_hash) for each in append.keyed] for append in appends]
        absent = [key for each in keys for key in each if not self._is_due(key, now)]
        if absent:
            return [], absent
        answers: builtins.list[Appended | Refused] = []
        for append, mine in zip(appends, keys, strict=True):
            partition = self._partition(append.pid)
            epoch = append.epoch if partition is None else partition.head.epoch
            answer = self._append(replace(append, epoch=epoch))
            done = mine if isinstance(answer, Appended) else [mine[verdict.index] for verdict in answer.verdicts]
            for key in done:
                del self._rows[key]
            answers.append(answer)
        return answers, []

    async def refuse(self, keys: Sequence[ScheduledKey], *, is_listed: bool) -> int:
        await asyncio.sleep(0)
        return sum(self._end(key, ScheduledState.REFUSED, is_kept=not is_listed) for key in keys)

    async def cancel(self, key: ScheduledKey) -> FoundScheduled:
        await asyncio.sleep(0)
        self._end(key, ScheduledState.CANCELLED)
        return self._find(key)

    async def find(self, key: ScheduledKey) -> FoundScheduled:
        await asyncio.sleep(0)
        return self._find(key)

    async def list(
        self, pids: Sequence[int], *, after: tuple[datetime, ScheduledKey] | None = None, limit: int
    ) -> builtins.list[StoredScheduled]:
        await asyncio.sleep(0)
        wanted = set(pids)
        rows = sorted(
            (row.message for row in self._waiting() if row.message.key.pid in wanted),
            key=lambda message: _order(message.due_at, message.key),
        )
        return [message for message in rows if after is None or _order(message.due_at, message.key) > _order(*after)][
            :limit
        ]

    async def trim(self, memory: timedelta = ENDED_MEMORY) -> int:
        await asyncio.sleep(0)
        limit = self._clock() - memory
        old = [
            key
            for key, row in self._rows.items()
            if not row.is_kept and row.ended_at is not None and row.ended_at < limit
        ]
        for key in old:
            del self._rows[key]
        return len(old)

    def _schedule(self, new: NewScheduled, now: datetime, number: int, longest: timedelta) -> ScheduleResult:
        due_at = new.at if new.at is not None else now + (new.delay or timedelta())
        row, offset = self._rows.get(new.key), self._offset(new.key)
        if row is not None:
            return ScheduleResult(status=ScheduleStatus.REPEATED, due_at=row.message.due_at)
        if offset is not None:
            # The delay of a message that is in the log began at an unknown time.
            return ScheduleResult(status=ScheduleStatus.PUBLISHED, due_at=min(new.at or now, now), offset=offset)
        status = self._status(new, due_at, now, longest)
        if status is ScheduleStatus.SCHEDULED:
            stored = StoredScheduled(
                key=new.key,
                due_at=due_at,
                scheduled_at=now,
                memory=new.memory,
                payload=new.payload,
                expires_ms=new.expires_ms,
            )
            self._rows[new.key] = _Row(message=stored, number=number)
        return ScheduleResult(status=status, due_at=due_at)

    def _status(self, new: NewScheduled, due_at: datetime, now: datetime, longest: timedelta) -> ScheduleStatus:
        partition = self._partition(new.key.pid)
        if partition is None:
            return ScheduleStatus.MISSING
        if partition.head.state is not HeadState.OPEN:
            return ScheduleStatus.CLOSED
        if new.epoch < partition.head.epoch:
            return ScheduleStatus.EPOCH
        if due_at > now + longest:
            return ScheduleStatus.TOO_LATE
        return ScheduleStatus.SCHEDULED if due_at > now else ScheduleStatus.PAST

    def _offset(self, key: ScheduledKey) -> int | None:
        """Return the offset at which the message is in the log, if the partition remembers it."""
        partition = self._partition(key.pid)
        offset, expires_at = (None, None) if partition is None else partition.keys.get(key.mark, (None, None))
        return offset if expires_at is not None and expires_at > self._clock() else None

    def _find(self, key: ScheduledKey) -> FoundScheduled:
        row = self._rows.get(key)
        if row is not None:
            return FoundScheduled(state=row.state, due_at=row.message.due_at)
        return FoundScheduled(offset=self._offset(key))

    def _waiting(self) -> builtins.list[_Row]:
        return [row for row in self._rows.values() if row.state is ScheduledState.WAITING]

    def _is_due(self, key: ScheduledKey, now: datetime) -> bool:
        row = self._rows.get(key)
        return row is not None and row.state is ScheduledState.WAITING and row.message.due_at <= now

    def _end(self, key: ScheduledKey, state: ScheduledState, *, is_kept: bool = False) -> bool:
        row = self._rows.get(key)
        if row is None or row.state is not ScheduledState.WAITING:
            return False
        self._rows[key] = replace(row, state=state, ended_at=self._clock(), is_kept=is_kept)
        return True


def _order(due_at: datetime, key: ScheduledKey) -> tuple[datetime, int, bytes]:
    return due_at, key.pid, key.mark
