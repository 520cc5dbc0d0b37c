"""The storage seam of a cell: the partition store. The catalog's is in `catalog`, and is to be had here, too.

A store writes what was decided, in one statement or one short transaction; it makes no policy. Contracts stand here, on
the methods; every implementation passes `tests/contract`. Stores hand out whole batches as bytes: the engine slices.
A lost connection before anything was sent is `Unavailable`; after that it is `OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from lakelog.errors import OffsetOutOfRange
from lakelog.model.segment import Segment
from lakelog.storage.catalog import Catalog as Catalog

if TYPE_CHECKING:
    from lakelog.storage.cold import ColdStore
    from lakelog.storage.groups import GroupStore
    from lakelog.storage.staging import StagingStore

DEFAULT_CELL = 0
PRODUCER_MEMORY = timedelta(hours=24)
PRODUCER_BATCHES = 5
"""How many of a producer's last batches into a partition are answered again with their offsets."""
TIER_GRACE = timedelta(seconds=60)
"""So long hot batches stay beside the verified segment that holds them: readers who are at them finish."""


class HeadState(IntEnum):
    """What may be done to a partition. Open -> sealed -> deleted; never back."""

    OPEN = 0
    SEALED = 1
    DELETED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest row of a partition's journal."""

    pid: int
    version: int
    next_offset: int
    log_start: int
    roll: int
    state: HeadState
    epoch: int
    appended_at: datetime
    total_bytes: int
    """Bytes of payload ever appended: with a batch's `bytes_end` it says how much lies behind that batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencedRun:
    """A run of an append that a producer numbered. `start` is relative to the append's first message."""

    producer: bytes
    sequence: int
    start: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedMessage:
    """A message of an append with an idempotency key, by its hash. `start` as in `SequencedRun`."""

    key_hash: bytes
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One hot batch to be: encoded bytes and how many messages they hold."""

    data: bytes
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """All that one commit appends to one partition."""

    pid: int
    epoch: int
    payloads: Sequence[Payload]
    sequenced: Sequence[SequencedRun] = ()
    keyed: Sequence[KeyedMessage] = ()

    @property
    def count(self) -> int:
        return sum(payload.count for payload in self.payloads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The append is durable: its messages have the offsets from `base`, in order."""

    pid: int
    base: int
    appended_at: datetime


class Refusal(IntEnum):
    """Why nothing of an append was written."""

    MISSING = 1
    """The partition has no head here: not yet created, or another cell's."""
    CLOSED = 2
    """Sealed or deleted."""
    EPOCH = 3
    """Partitions were added since the caller read the topic."""
    PARTS = 4
    """Some of its parts are duplicates or out of sequence: `verdicts` says which. Append the rest again."""


class Verdict(IntEnum):
    """What is wrong with one sequenced run or keyed message."""

    DUPLICATE = 1
    UNKNOWN_PRODUCER = 2
    GAP = 3
    """The sequence skips at least one batch, or one that is older than the remembered ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartVerdict:
    """The verdict on `sequenced[index]` or `keyed[index]`; a duplicate has the offset of its first message."""

    keyed: bool
    index: int
    verdict: Verdict
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing of this append was written. Other appends of the same commit were not held up by it."""

    pid: int
    refusal: Refusal
    verdicts: Sequence[PartVerdict] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """An idempotency key, by its hash, with what its first user wanted."""

    incarnation: int
    key_hash: bytes
    body_hash: bytes
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HotBatch:
    """A stored batch, whole: it may begin before the offset that was asked for."""

    base: int
    count: int
    appended_at: datetime
    epoch: int
    bytes_end: int
    payload: bytes

    @property
    def end(self) -> int:
        return self.base + self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """What a read found: the head as it was, and batches without a gap from the offset asked for.

    Or the verified segment that holds the offset, and no batches: its file is the caller's to read.
    """

    head: Head
    batches: Sequence[HotBatch]
    segment: Segment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRoll:
    """The hot table that takes new batches: its number, its bytes on disk, its birth."""

    roll: int
    bytes: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """Settings of PostgreSQL under which an acknowledged commit could be lost; empty when there are none."""

    weak: Sequence[str]
    synchronous_standby: bool
    timeline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """How many rows a trim removed."""

    heads: int = 0
    producers: int = 0
    keys: int = 0


class PartitionStore(Protocol):
    """Everything keyed by a partition, in one cell. Verbs are batch-first; none needs two partitions to be atomic."""

    @property
    def groups(self) -> GroupStore:
        """Journals, members and dead letters."""
        ...

    @property
    def cold(self) -> ColdStore:
        """Cold segments."""
        ...

    @property
    def staging(self) -> StagingStore:
        """Messages that wait for a decision."""
        ...

    async def heads_create(self, pids: Sequence[int], epoch: int) -> None:
        """Makes heads at offset 0 where there are none. A head that exists, also a deleted one, stays as it is."""
        ...

    async def heads_read(self, pids: Sequence[int]) -> list[Head]:
        """The newest heads of those that exist, by pid."""
        ...

    async def heads_close(self, pids: Sequence[int], state: HeadState) -> None:
        """Seals or deletes. Deleting raises the log start to the next offset. Safe to repeat; never reopens."""
        ...

    async def epoch_raise(self, pids: Sequence[int], epoch: int) -> None:
        """From now on, appends that name a lower epoch are refused. Safe to repeat."""
        ...

    async def log_start_raise(self, starts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Per (pid, offset): how many messages went out of reach. Never lowers, never passes the next offset."""
        ...

    async def append(self, appends: Sequence[Append]) -> list[Appended | Refused]:
        """One commit for all, one answer each, in the order given; at most one append per pid.

        Offsets are dense and in commit order; `appended_at` never falls within a partition. Each append is all or
        nothing. Durable when this returns.
        """
        ...

    async def reserve(self, reservations: Sequence[Reservation], *, durable: bool) -> list[Reservation]:
        """Per key, the reservation that holds: this one, or the earlier. First writer wins, across servers.

        Not `durable`: may be lost in a crash unless a later commit of this cell is durable. Enough when the message
        itself goes to this same cell. A key may stand only once in a call.
        """
        ...

    async def read(self, pid: int, offset: int, *, max_messages: int, max_bytes: int) -> ReadResult | None:
        """Batches from the one that holds `offset`, at least one if there is any. None without a head.

        Stops after the batch that reaches `max_messages` or `max_bytes`, or earlier: less is never the end of the log.
        `OffsetOutOfRange` below the log start or above the next offset.
        """
        ...

    async def read_many(
        self, asks: Sequence[tuple[int, int]], *, max_messages: int, max_bytes: int
    ) -> list[ReadResult | OffsetOutOfRange | None]:
        """`read` of many (pid, offset) at once, with the limits for each; each pid once. What it raises is answered."""
        ...

    async def append_times(self, asks: Sequence[tuple[int, int]]) -> list[datetime | None]:
        """Per (pid, offset), when the message was appended; None where the log does not hold it, or not any more.

        A message in a cold segment counts as appended when the segment's first message was: no file is read for it.
        """
        ...

    async def offset_at_time(self, pid: int, time: datetime) -> int:
        """The first offset whose batch was appended at `time` or later; the next offset if there is none.

        A cold segment counts as a whole: where the offset is inside of one, its first is answered.
        """
        ...

    async def offset_at_bytes(self, pid: int, max_bytes: int) -> int:
        """The lowest offset behind which at most `max_bytes` of whole batches lie; a segment counts as one batch."""
        ...

    async def roll(self, expected: int | None = None) -> int:
        """Begins a new hot table for every partition, if `expected` (when given) is still the active one.

        The number of the active roll afterwards.
        """
        ...

    async def roll_active(self) -> ActiveRoll: ...

    async def rolls_drop(self, *, grace: timedelta = TIER_GRACE) -> list[int]:
        """Drops hot tables in which everything is retired, except those that somebody holds. Never waits long.

        Retired is what is below the log start, and what segments hold that were verified at least `grace` ago.
        """
        ...

    async def trim(self, incarnation_memory: dict[int, timedelta]) -> Trimmed:
        """Forgets old head rows (never the newest), producers and idempotency keys (24 h, or as the topic says)."""
        ...

    async def clock(self) -> datetime:
        """The database's time: the only `now` that a decision may use."""
        ...

    async def durability(self) -> Durability: ...

    async def announce(self, pids: Collection[int]) -> None:
        """Tells other processes that these partitions grew. May be lost: it only makes waiting shorter.

        A negative number, -group_id, says that the group changed.
        """
        ...

    def announcements(self) -> AsyncIterator[set[int]]:
        """Partitions that other processes announced; an empty set after a reconnect means: any may have grown."""
        ...

    async def close(self) -> None: ...
