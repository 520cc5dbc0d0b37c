"""Publishes delayed messages that are due: appends them and removes them from the scheduled messages in one statement.

Any number of processes may do this at the same time, because the rows are locked. `lakelog.maintenance` decides when,
and lets one process of a cell work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from lakelog.batches import decode, decode_small, encode_messages, to_messages
from lakelog.engine.log.threads import Threads
from lakelog.errors import LakelogError, TopicNotFound
from lakelog.model.limits import MAX_BODY_BYTES
from lakelog.model.message import PARTITION_BITS, Message, partition_of_id, scheduled_id
from lakelog.model.outbox import RejectionSource
from lakelog.model.times import EPOCH, MICROSECOND, to_ms, to_time
from lakelog.reporting import counted, log_event
from lakelog.storage.outbox import StoredRejection
from lakelog.storage.scheduled import ScheduledKey, StoredScheduled
from lakelog.storage.store import Append, Appended, Catalog, KeyedMessage, PartitionStore, Payload, Refusal, Refused

PER_PASS = 2000
"""The largest number of messages that are read at once."""
_PARTITIONS = 32
"""The largest number of partitions in one statement, which holds a lock for each."""
_OVERLAP = timedelta(minutes=1)
"""How far before the last due message the next search begins. Statements that schedule end within 20 seconds."""
_WHOLE_SECONDS = 60.0
"""How often a search begins at the oldest message. Between, it passes over the rows of delivered messages, which
PostgreSQL keeps for as long as an old transaction could see them.
"""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Position:
    """Where the next search in a cell begins."""

    since: datetime | None = None
    whole_at: float = -_WHOLE_SECONDS
    """When a search began at the oldest message, in monotonic time."""
    now: datetime = EPOCH
    """The database's time at `read_at`."""
    read_at: float = 0.0
    until: float = 0.0
    """When `wait` ends, in monotonic time."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a message was scheduled in this process that is due before `wait` ends."""


class ScheduledDelivery:
    """Delivers the scheduled messages of all cells; one per engine.

    Attributes:
        delivered: How many messages this process has delivered since its start.
        refused: How many messages the log refused when they were due, since the start of this process.
    """

    def __init__(
        self,
        catalog: Catalog,
        cells: Mapping[int, PartitionStore],
        threads: Threads,
        wrote: Callable[[int, int, int, int], None],
    ) -> None:
        """Create the delivery. It calls `wrote` with the cell, the partition, the first offset and the count."""
        self._catalog = catalog
        self._cells = cells
        self._threads = threads
        self._wrote = wrote
        self._positions = {cell: _Position() for cell in cells}
        self.delivered = 0
        self.refused = 0

    def wake(self, cell: int, due_at: datetime) -> None:
        """Let `wait` return if a message that was scheduled in this process is due before its end."""
        position = self._positions[cell]
        if (due_at - position.now).total_seconds() < position.until - position.read_at:
            position.news.set()

    async def wait(self, cell: int, seconds: float) -> None:
        """Wait for that time, or until a message that is due earlier is scheduled in this process."""
        position = self._positions[cell]
        position.until = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await position.news.wait()
        position.news.clear()

    def drop(self, cell: int) -> None:
        """Search from the oldest message again, because the data was replaced."""
        if cell in self._positions:
            self._positions[cell].since = None

    async def seconds_until_due(self, cell: int) -> float | None:
        """Return the seconds until the next message of the cell is due, 0 or less if one is due; None if none waits."""
        position = self._positions[cell]
        if (now := time.monotonic()) > position.whole_at + _WHOLE_SECONDS:
            position.since, position.whole_at = None, now
        found = await self._cells[cell].scheduled.next_due(position.since)
        position.now, position.read_at = found.now, time.monotonic()
        return None if found.due_at is None else (found.due_at - found.now).total_seconds()

    async def deliver_all(self, cell: int) -> int:
        """Deliver the messages of the cell that are due, and return how many."""
        total = 0
        while (found := await self.deliver_some(cell)) is not None:
            total += found
        return total

    async def deliver_some(self, cell: int) -> int | None:
        """Deliver up to `PER_PASS` messages of the cell. Return how many, or None if no message is due."""
        position, store = self._positions[cell], self._cells[cell].scheduled
        due = await store.due(since=position.since, limit=PER_PASS, max_bytes=MAX_BODY_BYTES)
        if not due:
            return None
        messages, unreadable = await self._threads.run(_total(due), _decoded, due, await self._cells[cell].clock())
        if unreadable:
            # The list of rejected messages could not show them.
            await self._refuse(cell, unreadable, "they cannot be read", is_listed=False)
        by_partition: dict[int, list[StoredScheduled]] = {}
        for stored in due:
            if stored.key in messages:
                by_partition.setdefault(stored.key.pid, []).append(stored)
        done = 0
        for pids in _chunks(sorted(by_partition)):
            done += await self._deliver(cell, {pid: by_partition[pid] for pid in pids}, messages)
        position.since = due[-1].due_at - _OVERLAP
        return done

    async def _deliver(
        self, cell: int, waiting: dict[int, list[StoredScheduled]], messages: Mapping[ScheduledKey, Message]
    ) -> int:
        """Deliver messages by partition, again without those that were cancelled or delivered since they were read."""
        done = 0
        while waiting:
            size = sum(map(_total, waiting.values()))
            appends = await self._threads.run(size, _appends, waiting, messages)
            answers, absent = await self._cells[cell].scheduled.deliver(appends)
            if absent:
                waiting = _without(waiting, set(absent))
                continue
            again: dict[int, list[StoredScheduled]] = {}
            for append, answer in zip(appends, answers, strict=True):
                mine = waiting[append.pid]
                if isinstance(answer, Appended):
                    self._wrote(cell, answer.pid, answer.base, append.count)
                    done += append.count
                elif answer.refusal is Refusal.PARTS:
                    repeated = {mine[verdict.index].key for verdict in answer.verdicts}
                    again.update(_without({append.pid: mine}, repeated))
                else:
                    await self._reject(append.pid, {each.key: messages[each.key] for each in mine}, _reason(answer))
                    await self._refuse(cell, [each.key for each in mine], _reason(answer), is_listed=True)
            waiting = again
        self.delivered += done
        return done

    async def _reject(self, pid: int, messages: Mapping[ScheduledKey, Message], reason: str) -> None:
        """Add messages to the list of rejected messages. It is safe to repeat."""
        incarnation, partition = pid >> PARTITION_BITS, partition_of_id(pid)
        for topic in await self._catalog.topic_list_some([incarnation]):
            rejections = [
                StoredRejection(
                    message_id=scheduled_id(incarnation, partition, key.mark),
                    source=RejectionSource.SCHEDULED,
                    topic=topic.name,
                    code=TopicNotFound.code,
                    reason=f"Topic '{topic.name}' cannot take the message any more: {reason}.",
                    payload=encode_messages([message]),
                )
                for key, message in messages.items()
            ]
            await self._catalog.rejected.rejected_add(topic.scope, rejections)

    async def _refuse(self, cell: int, keys: Sequence[ScheduledKey], reason: str, *, is_listed: bool) -> None:
        count = await self._cells[cell].scheduled.refuse(keys, is_listed=is_listed)
        self.refused += count
        message = f"Cell {cell}: {counted(count, 'delayed message')} could not be published when due: {reason}."
        log_event(_log, logging.WARNING, "scheduled_refused", message, cell=cell, messages=count)


def _decoded(due: Sequence[StoredScheduled], now: datetime) -> tuple[dict[ScheduledKey, Message], list[ScheduledKey]]:
    """Return the messages, and the keys of those that cannot be read, which would block the others."""
    found: dict[ScheduledKey, Message] = {}
    unreadable: list[ScheduledKey] = []
    for stored in due:
        try:
            message = _message(stored.payload)
        except (LakelogError, ValueError, IndexError, TypeError):
            unreadable.append(stored.key)
            continue
        if stored.expires_ms is not None:
            message = replace(message, expires_at=to_time(to_ms(now) + stored.expires_ms))
        found[stored.key] = message
    return found, unreadable


def _message(payload: bytes) -> Message:
    """Return the message of a batch with one. Reading it without Arrow takes a fifth of the time."""
    small = decode_small(payload)
    if small is None:
        return to_messages(decode(payload))[0]
    fields: dict[str, Any] = {name: column[0] for name, column in small.items()}
    for name in ("created_at", "expires_at"):
        if fields.get(name) is not None:
            fields[name] = EPOCH + fields[name] * MICROSECOND
    return Message(**fields)


def _appends(
    waiting: Mapping[int, Sequence[StoredScheduled]], messages: Mapping[ScheduledKey, Message]
) -> list[Append]:
    return [_append(pid, some, messages) for pid, some in waiting.items()]


def _total(stored: Sequence[StoredScheduled]) -> int:
    return sum(len(each.payload) for each in stored)


def _append(pid: int, stored: Sequence[StoredScheduled], messages: Mapping[ScheduledKey, Message]) -> Append:
    data = encode_messages([messages[each.key] for each in stored])
    keyed = [KeyedMessage(key_hash=each.key.mark, start=start, memory=each.memory) for start, each in enumerate(stored)]
    return Append(pid=pid, epoch=0, payloads=[Payload(data=data, count=len(stored))], keyed=keyed)


def _without(
    waiting: Mapping[int, Sequence[StoredScheduled]], absent: set[ScheduledKey]
) -> dict[int, list[StoredScheduled]]:
    """Return the messages by partition without these, and without partitions that have none left."""
    left = {pid: [each for each in some if each.key not in absent] for pid, some in waiting.items()}
    return {pid: some for pid, some in left.items() if some}


def _chunks(pids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (pids[start : start + _PARTITIONS] for start in range(0, len(pids), _PARTITIONS))


def _reason(answer: Refused) -> str:
    return "the topic was deleted" if answer.refusal is Refusal.CLOSED else "the partition does not exist"
