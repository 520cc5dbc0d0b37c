"""Storage protocol of scheduled messages: delayed messages that wait in the cell of their partition until they are due.

A message is identified by its partition and its mark. The contracts are the docstrings of the methods; `tests/contract`
checks every implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Protocol

from lakelog.model.topic import IDEMPOTENCY_MEMORY
from lakelog.storage.store import Append, Appended, Refused

ENDED_MEMORY = timedelta(hours=24)
"""How long a message that has ended is remembered, so that a repeated call gets the same answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledKey:
    """The partition and the mark of a scheduled message."""

    pid: int
    mark: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NewScheduled:
    """A message to schedule, with either a delay from now or a time.

    Attributes:
        key: The partition and the mark.
        epoch: The epoch by which the partition was chosen.
        payload: A batch with the message.
        delay: How long the message waits, or None.
        at: When the message is due, or None.
        expires_ms: When the message expires, in milliseconds after its delivery, or None.
        memory: How long the partition remembers the mark after the delivery.
    """

    key: ScheduledKey
    epoch: int
    payload: bytes
    delay: timedelta | None = None
    at: datetime | None = None
    expires_ms: int | None = None
    memory: timedelta = IDEMPOTENCY_MEMORY


class ScheduleStatus(IntEnum):
    """The outcome for a message that was to be scheduled."""

    SCHEDULED = 0
    MISSING = 1
    """The partition has no head in this cell."""
    CLOSED = 2
    """The partition is sealed or deleted."""
    EPOCH = 3
    """Partitions were added since the caller read the topic."""
    REPEATED = 4
    """An earlier call scheduled the message. It waits, or was cancelled."""
    PUBLISHED = 5
    """The message is in the log already."""
    PAST = 6
    """The time has passed, and nothing is written: the caller publishes the message."""
    TOO_LATE = 7
    """The time is too far in the future."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleResult:
    """The status of a message, when it is due, and its offset if it is in the log already.

    A message with a delay that is in the log already was due at `due_at` or earlier.
    """

    status: ScheduleStatus
    due_at: datetime
    offset: int | None = None


class ScheduledState(IntEnum):
    """State of a stored message. A delivered message is not stored any more."""

    WAITING = 0
    CANCELLED = 1
    REFUSED = 2
    """The log refused the message when it was due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScheduled:
    """A message that waits."""

    key: ScheduledKey
    due_at: datetime
    scheduled_at: datetime
    memory: timedelta
    payload: bytes
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextDue:
    """The database's time, and when the next message is due; None if no message waits."""

    now: datetime
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundScheduled:
    """Where a message is: stored in a state, or in the log at an offset."""

    state: ScheduledState | None = None
    due_at: datetime | None = None
    offset: int | None = None


class ScheduledStore(Protocol):
    """Scheduled messages of one cell; the `scheduled` of a `PartitionStore`."""

    async def schedule(self, messages: Sequence[NewScheduled], *, longest: timedelta) -> list[ScheduleResult]:
        """Store messages in one commit, and return one result each, in order. Each key occurs once in a call.

        Delays count from the database's time. A message that an earlier call scheduled, delivered or cancelled is
        recognised by its mark before anything else is checked, and is not stored again. Durable when this returns.
        """
        ...

    async def next_due(self, since: datetime | None = None) -> NextDue:
        """Return when the next message is due. With `since`, messages that are due before that time are left out."""
        ...

    async def due(self, *, since: datetime | None = None, limit: int, max_bytes: int) -> list[StoredScheduled]:
        """Return messages that are due, the earliest first, up to the one that reaches a limit.

        Messages that are due at the same time are in the order in which they were scheduled. With `since`, messages
        that are due before that time are left out.
        """
        ...

    async def deliver(self, appends: Sequence[Append]) -> tuple[list[Appended | Refused], list[ScheduledKey]]:
        """Append messages that are due and remove them, in one statement; `keyed` of the appends has their marks.

        If some of the messages do not wait or are not due, nothing is written, and the result is empty with their keys.
        Otherwise there is one result per append, in order. The epochs of the appends are ignored. A message whose mark
        is in the log already is removed, and its append is refused with `PARTS`: append its other messages again.
        After `OutcomeUnknown`, `due` returns what was not delivered.
        """
        ...

    async def refuse(self, keys: Sequence[ScheduledKey], *, is_listed: bool) -> int:
        """Record that the log refused messages that wait, and return how many. They are not due any more.

        Messages that are in the list of rejected messages are forgotten after `ENDED_MEMORY`, others never.
        """
        ...

    async def cancel(self, key: ScheduledKey) -> FoundScheduled:
        """Cancel a message that waits, and return where it is now. Safe to repeat, for `ENDED_MEMORY`."""
        ...

    async def find(self, key: ScheduledKey) -> FoundScheduled:
        """Return where a message is. Without a state and an offset, it is unknown."""
        ...

    async def list(
        self, pids: Sequence[int], *, after: tuple[datetime, ScheduledKey] | None = None, limit: int
    ) -> list[StoredScheduled]:
        """Return messages of these partitions that wait, by due time, pid and mark, starting after a position."""
        ...

    async def trim(self, memory: timedelta = ENDED_MEMORY) -> int:
        """Delete messages that were cancelled, or refused and listed, longer than `memory` ago; return how many."""
        ...
