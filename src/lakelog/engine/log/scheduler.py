"""Schedules delayed messages: stores them in the cell of their partition, lists and cancels them.

The partition is chosen when the message is scheduled. `scheduled_delivery` publishes messages that are due.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lakelog.batches import decode, encode_messages, to_messages
from lakelog.engine.log.topics import Topics
from lakelog.errors import InvalidRequest, LakelogError, NotFound
from lakelog.model.levels import FeatureLevel, check_level
from lakelog.model.limits import MAX_DELAY_MS
from lakelog.model.message import MARK_BYTES, Message, parse_scheduled_id, partition_of_id, scheduled_id
from lakelog.model.position import Receipt, ScheduledReceipt
from lakelog.model.scheduled import CancelledMessage, CancelRequest, ScheduledMessage, ScheduledPage, ScheduledQuery
from lakelog.model.times import EPOCH, MICROSECOND
from lakelog.model.topic import IDEMPOTENCY_MEMORY, Scope, Topic
from lakelog.storage.scheduled import (
    NewScheduled,
    ScheduledKey,
    ScheduledState,
    ScheduleResult,
    ScheduleStatus,
    StoredScheduled,
)
from lakelog.storage.store import PartitionStore, Refusal

_LONGEST = timedelta(milliseconds=MAX_DELAY_MS)
_PER_CALL = 1000
_CURSOR = re.compile(r"([0-9]{1,18})-([0-9]{1,5})-([0-9a-f]{32})", re.ASCII)
_REFUSALS = {
    ScheduleStatus.MISSING: Refusal.MISSING,
    ScheduleStatus.CLOSED: Refusal.CLOSED,
    ScheduleStatus.EPOCH: Refusal.EPOCH,
}


@dataclass(slots=True)
class Scheduled:
    """The outcome of a call, by the index of the message."""

    answers: dict[int, Receipt | LakelogError] = field(default_factory=dict)
    changed: dict[int, Refusal] = field(default_factory=dict)
    """Messages that were refused because the topic changed."""
    past: dict[int, bytes] = field(default_factory=dict)
    """Messages whose time has passed, with their marks. The caller publishes them, each with its mark as key."""


class Scheduler:
    """Schedules messages of all topics; one per engine.

    Args:
        topics: The topics.
        cells: The stores of the cells.
        level: Returns the feature level of the installation.
        wake: Called with a cell and the due time of a message that was scheduled there.
    """

    def __init__(
        self,
        topics: Topics,
        cells: Mapping[int, PartitionStore],
        level: Callable[[], int],
        wake: Callable[[int, datetime], None],
    ) -> None:
        self._topics = topics
        self._cells = cells
        self._level = level
        self._wake = wake

    async def schedule(
        self,
        topic: Topic,
        messages: Mapping[int, Message],
        chosen: Mapping[int, int],
        hashes: Mapping[int, bytes],
        epoch: int | None,
    ) -> Scheduled:
        """Schedule messages in their chosen partitions. `hashes` are those of idempotency keys."""
        check_level(self._level(), FeatureLevel.FOURTH, "Delayed messages")
        found = Scheduled()
        rows: dict[int, NewScheduled] = {}
        for index, message in messages.items():
            try:
                rows[index] = _row(topic, message, chosen[index], hashes.get(index), epoch)
            except InvalidRequest as error:
                found.answers[index] = error
        by_cell: dict[int, dict[int, NewScheduled]] = {}
        for index, row in rows.items():
            by_cell.setdefault(topic.cells[chosen[index]], {})[index] = row
        await asyncio.gather(*(self._store(topic, cell, mine, found) for cell, mine in by_cell.items()))
        return found

    async def _store(self, topic: Topic, cell: int, rows: dict[int, NewScheduled], found: Scheduled) -> None:
        firsts: dict[ScheduledKey, int] = {}
        for index, row in rows.items():
            firsts.setdefault(row.key, index)
        indexes = list(firsts.values())
        for start in range(0, len(indexes), _PER_CALL):
            some = [rows[index] for index in indexes[start : start + _PER_CALL]]
            try:
                results = await self._cells[cell].scheduled.schedule(some, longest=_LONGEST)
            except LakelogError as error:
                results = []
                found.answers.update(dict.fromkeys(indexes[start : start + _PER_CALL], error))
            for index, row, result in zip(indexes[start:], some, results, strict=False):
                self._settle(topic, cell, index, row, result, found)
        for index, row in rows.items():
            if index != (first := firsts[row.key]):
                _repeat(index, first, found)

    def _settle(
        self, topic: Topic, cell: int, index: int, row: NewScheduled, result: ScheduleResult, found: Scheduled
    ) -> None:
        if (refusal := _REFUSALS.get(result.status)) is not None:
            found.changed[index] = refusal
        elif result.status is ScheduleStatus.PAST:
            found.past[index] = row.key.mark
        elif result.status is ScheduleStatus.TOO_LATE:
            found.answers[index] = _too_late()
        else:
            partition = partition_of_id(row.key.pid)
            found.answers[index] = ScheduledReceipt(
                id=scheduled_id(topic.incarnation, partition, row.key.mark),
                partition=partition,
                offset=result.offset,
                due_at=result.due_at,
                duplicate=result.status is not ScheduleStatus.SCHEDULED,
            )
            if result.status is ScheduleStatus.SCHEDULED:
                self._wake(cell, result.due_at)

    async def list(self, scope: Scope, request: ScheduledQuery) -> ScheduledPage:
        """Return messages of a topic that wait, the earliest first."""
        topic = await self._topics.refresh(scope, request.topic)
        after = None if request.after is None else _parse_cursor(request.after, topic)
        pages = await asyncio.gather(
            *(
                self._cells[cell].scheduled.list(pids, after=after, limit=request.limit)
                for cell, pids in topic.pids_by_cell().items()
            )
        )
        found = sorted((each for page in pages for each in page), key=_order)[: request.limit]
        following = _cursor_text(found[-1]) if len(found) == request.limit else None
        return ScheduledPage(messages=[_shown(each, topic) for each in found], next=following)

    async def cancel(self, scope: Scope, request: CancelRequest) -> CancelledMessage:
        """Cancel a message that waits. Return whether it is cancelled, and where it is otherwise."""
        topic = await self._topics.refresh(scope, request.topic)
        incarnation, partition, mark = parse_scheduled_id(request.message_id)
        unknown = NotFound(
            f"Topic '{topic.name}' has no delayed message {request.message_id}. Messages that were published or "
            "cancelled are remembered for 24 hours.",
            topic=topic.name,
            id=request.message_id,
        )
        if incarnation != topic.incarnation or partition >= topic.partitions:
            raise unknown
        key = ScheduledKey(pid=topic.pid(partition), mark=mark)
        found = await self._cells[topic.cells[partition]].scheduled.cancel(key)
        if found.state is None and found.offset is None:
            raise unknown
        is_cancelled = found.state is ScheduledState.CANCELLED
        return CancelledMessage(id=request.message_id, cancelled=is_cancelled, partition=partition, offset=found.offset)


def _row(topic: Topic, message: Message, partition: int, key_hash: bytes | None, epoch: int | None) -> NewScheduled:
    schedule = message.schedule
    assert schedule is not None
    if schedule.delay_ms is not None and schedule.delay_ms > MAX_DELAY_MS:
        raise _too_late()
    delay = None if schedule.delay_ms is None else timedelta(milliseconds=schedule.delay_ms)
    mark = key_hash or schedule.mark or secrets.token_bytes(MARK_BYTES)
    return NewScheduled(
        key=ScheduledKey(pid=topic.pid(partition), mark=mark),
        epoch=topic.epoch if epoch is None else epoch,
        payload=encode_messages([message]),
        delay=delay,
        at=schedule.deliver_at,
        expires_ms=message.expires_ms,
        memory=IDEMPOTENCY_MEMORY if key_hash is None else topic.settings.idempotency_memory,
    )


def _repeat(index: int, first: int, found: Scheduled) -> None:
    """Give a message the outcome of an earlier one of the same call that has the same key."""
    if (answer := found.answers.get(first)) is not None:
        found.answers[index] = replace(answer, duplicate=True) if isinstance(answer, Receipt) else answer
    elif first in found.changed:
        found.changed[index] = found.changed[first]
    else:
        found.past[index] = found.past[first]


def _too_late() -> InvalidRequest:
    return InvalidRequest(f"A message can be delayed by at most {_LONGEST.days} days.")


def _order(stored: StoredScheduled) -> tuple[datetime, int, bytes]:
    return stored.due_at, stored.key.pid, stored.key.mark


def _shown(stored: StoredScheduled, topic: Topic) -> ScheduledMessage:
    message = to_messages(decode(stored.payload))[0]
    partition = partition_of_id(stored.key.pid)
    return ScheduledMessage(
        id=scheduled_id(topic.incarnation, partition, stored.key.mark),
        topic=topic.name,
        partition=partition,
        due_at=stored.due_at,
        scheduled_at=stored.scheduled_at,
        key=message.key,
        raw=message.value,
        headers=message.headers or {},
        content_type=message.content_type,
        correlation_id=message.correlation_id,
        idempotency_key=message.idempotency_key,
    )


def _cursor_text(stored: StoredScheduled) -> str:
    microseconds = (stored.due_at - EPOCH) // MICROSECOND
    return f"{microseconds}-{partition_of_id(stored.key.pid)}-{stored.key.mark.hex()}"


def _parse_cursor(text: str, topic: Topic) -> tuple[datetime, ScheduledKey]:
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{text[:120]!r} is not the end of a page. Use `next` of the last page as `after`.")
    key = ScheduledKey(pid=topic.pid(int(match[2])), mark=bytes.fromhex(match[3]))
    return EPOCH + int(match[1]) * MICROSECOND, key
