"""Storage protocols of outboxes: the outbox in an application's database, and the records of its messages in the log.

A relay reads the messages that became visible in the outbox since its last read, and appends them to the log. The
statement that appends messages also records their ids, so that a relay that starts again finds what is in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from lakelog.model.outbox import RejectionSource
from lakelog.model.topic import Scope

if TYPE_CHECKING:
    from lakelog.storage.store import Append, Appended, Refused

RELAYED_MEMORY = timedelta(hours=24)
"""How long the log remembers the ids of messages that came from an outbox, at least."""
TRIM_RECORDS = 10_000
"""The largest number of these records that one call of `relayed_trim` deletes."""
REJECTED_PID = 0
"""The partition id in the record of a message that was rejected."""
NO_OFFSET = -1
"""The offset in the record of a delayed message, which has none yet."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The transactions that a statement saw: those below `end` that were not `running`."""

    end: int
    running: frozenset[int] = frozenset()

    def shows(self, transaction: int) -> bool:
        """Return whether the statement saw the transaction, if the transaction was committed."""
        return transaction < self.end and transaction not in self.running


NOTHING_SEEN = Snapshot(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSettings:
    """The settings of an outbox: its id, and the environment of its topics."""

    outbox_id: int
    project: str
    environment: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutboxRow:
    """A message in an outbox. `transaction` is the id of the transaction that wrote it."""

    number: int
    salt: int
    transaction: int
    topic: str
    created_at: datetime
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str] | None
    content_type: str | None
    correlation_id: str | None
    idempotency_key: str | None
    partition: int | None
    expires_ms: int | None
    expires_at: datetime | None
    deliver_at: datetime | None

    @property
    def mark(self) -> tuple[int, int]:
        """The number and the salt, which identify the message in its outbox."""
        return self.number, self.salt


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxPage:
    """Messages of an outbox, sorted by transaction and number.

    Attributes:
        rows: The messages.
        snapshot: The transactions that the read saw.
        is_last: Whether no message follows.
        started_at: When the database server was started. After that, the data may be other data.
    """

    rows: Sequence[OutboxRow]
    snapshot: Snapshot
    is_last: bool
    started_at: datetime


class OutboxSource(Protocol):
    """An outbox in an application's database, for the relay that reads it."""

    @property
    def address(self) -> str:
        """The host, the port and the name of the database."""
        ...

    async def open(self) -> OutboxSettings | None:
        """Return the settings; None if the database has no outbox. Call it first, and again after an error."""
        ...

    async def read(self, seen: Snapshot, after: tuple[int, int] = (0, 0)) -> OutboxPage:
        """Return messages that are visible now and were not in `seen`, behind the transaction and number of `after`.

        The number and the size of the messages are limited.
        """
        ...

    async def rotate(self) -> bool:
        """Let new messages go to the next table, and return whether they do: not if that table has rows."""
        ...

    async def empty(self, moved: Snapshot) -> int:
        """Empty the tables that take no new messages and whose messages are all in `moved`; return their number.

        A table in use by an open transaction is left for the next call. No caller waits.
        """
        ...

    async def oldest(self) -> datetime | None:
        """Return when the oldest message that is still in the outbox was published; None if it is empty."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedAppend:
    """An append of messages from an outbox, with the number and salt of each, in order."""

    append: Append
    marks: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRejection:
    """The record of a rejected message. `payload` is a batch with the message."""

    message_id: str
    source: RejectionSource
    topic: str
    code: str
    reason: str
    payload: bytes
    partition: int | None = None
    at: datetime | None = None
    """When it was rejected; None before it is stored."""
    number: int = 0
    """Its number in the list; 0 before it is stored."""


class RelayStore(Protocol):
    """The records of the messages of outboxes in a cell; the `relays` of a `PartitionStore`.

    One relay may write for an outbox, that with the newest epoch. The methods that take an epoch write nothing if there
    is a newer one.
    """

    async def epoch_raise(self, outbox_id: int, scope: Scope) -> int:
        """Return a new epoch, higher than all before. Statements of earlier relays have ended or are refused."""
        ...

    async def relay(
        self, outbox_id: int, epoch: int, appends: Sequence[RelayedAppend]
    ) -> list[Appended | Refused] | None:
        """Append like `PartitionStore.append`, and record the marks of the messages in the same commit.

        Return None if the relay was replaced.
        """
        ...

    async def reject(
        self, outbox_id: int, epoch: int, scope: Scope, rejections: Mapping[tuple[int, int], StoredRejection]
    ) -> bool:
        """Store rejected messages by mark, and record the marks in the same commit. Only in the default cell.

        Return False if the relay was replaced.
        """
        ...

    async def record(self, outbox_id: int, epoch: int, positions: Mapping[tuple[int, int], tuple[int, int]]) -> bool:
        """Record messages by mark that were appended in another way, with partition id and offset.

        Return False if the relay was replaced.
        """
        ...

    async def relayed(self, outbox_id: int, marks: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the partition id and the offset of each recorded message; `REJECTED_PID` for a rejected one."""
        ...

    async def environment(self, outbox_id: int) -> int | None:
        """Return the id of the environment of an outbox; None if the outbox is unknown."""
        ...

    async def relayed_trim(self, outbox_id: int, before: datetime) -> int:
        """Delete records from before a time and older than `RELAYED_MEMORY`; return how many.

        A call deletes at most `TRIM_RECORDS`; if it returns fewer, none is left.
        """
        ...


class RejectedCatalog(Protocol):
    """The rejected messages of all environments; the `rejected` of a `Catalog`."""

    async def rejected_add(self, scope: Scope, rejections: Sequence[StoredRejection]) -> None:
        """Store rejected messages. A message that is in the list already gets the new code and reason."""
        ...

    async def rejected_list(
        self, scope: Scope, *, topic: str | None = None, after: int = 0, limit: int = 100
    ) -> list[StoredRejection]:
        """Return rejected messages by number, from the one behind `after`."""
        ...

    async def rejected_find(self, scope: Scope, message_ids: Sequence[str]) -> list[StoredRejection]:
        """Return the rejected messages with these ids, by number."""
        ...

    async def rejected_remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        """Remove rejected messages, and return how many."""
        ...
