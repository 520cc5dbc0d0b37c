"""Storage protocol of a cell: the partition store. The catalog's protocol is in `catalog`, and is also exported here.

A store writes decisions in one statement or one short transaction, and makes none itself. The contracts are the
docstrings of the methods; `tests/contract` checks every implementation. Stores return whole batches as bytes, and the
engine slices them. A connection lost before anything was sent raises `Unavailable`; after that it raises
`OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from lakelog.errors import OffsetOutOfRange
from lakelog.model.fetch import StoredBatch
from lakelog.model.segment import Segment
from lakelog.model.topic import IDEMPOTENCY_MEMORY
from lakelog.storage.catalog import Catalog as Catalog
from lakelog.storage.changes import ChangeStore
from lakelog.storage.compaction import ROLL_BYTES, ActiveRoll, Compaction, RollCounts

if TYPE_CHECKING:
    from lakelog.storage.cold import ColdStore
    from lakelog.storage.election import ElectionStore
    from lakelog.storage.failover import Durability, TimelineStore
    from lakelog.storage.groups import GroupStore
    from lakelog.storage.outbox import RelayStore
    from lakelog.storage.scheduled import ScheduledStore
    from lakelog.storage.staging import StagingStore

DEFAULT_CELL = 0
PRODUCER_MEMORY = timedelta(hours=24)
PRODUCER_BATCHES = 5
"""Number of a producer's last batches per partition whose repeats are answered with the first offsets."""
RESERVATION_GRACE = timedelta(minutes=1)  # a reservation outlives its append, which comes later in the same call
TIER_GRACE = timedelta(seconds=60)
"""How long hot batches are kept after their segment was verified, so that current readers can finish."""
DELETED_MEMORY = timedelta(hours=1)
"""How long heads of deleted partitions are kept, so that delayed calls are refused as closed."""


class HeadState(IntEnum):
    """State of a partition: open, then sealed, then deleted. It never goes back."""

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
    """The roll of the last append; 0 before the first one."""
    state: HeadState
    epoch: int
    appended_at: datetime
    total_bytes: int
    """The number of payload bytes ever appended. The size of everything after a batch is this minus its `bytes_end`."""

    def out_of_range(self, offset: int) -> OffsetOutOfRange | None:
        """Return the error for an offset that cannot be read, or None."""
        if self.log_start <= offset <= self.next_offset:
            return None
        return OffsetOutOfRange(
            f"Offset {offset} is not between the log start {self.log_start} and the high watermark "
            f"{self.next_offset}. Read from 'earliest' or 'latest'.",
            offset=offset,
            log_start=self.log_start,
            high_watermark=self.next_offset,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencedRun:
    """A run of messages that a producer numbered. `start` is relative to the first message of the append."""

    producer: bytes
    sequence: int
    start: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedMessage:
    """A message with an idempotency key, given by its hash. `start` is relative to the first message of the append."""

    key_hash: bytes
    start: int
    memory: timedelta = IDEMPOTENCY_MEMORY
    """How long the key is remembered from this append on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The content of a hot batch: encoded bytes and the number of messages."""

    data: bytes
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Everything that one commit appends to one partition."""

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
    """A durable append. Its messages have consecutive offsets from `base`."""

    pid: int
    base: int
    appended_at: datetime


class Refusal(IntEnum):
    """Reason why an append was refused."""

    MISSING = 1
    """The partition has no head in this cell: it is not created yet, or is in another cell."""
    CLOSED = 2
    """The partition is sealed or deleted."""
    EPOCH = 3
    """Partitions were added since the caller read the topic."""
    PARTS = 4
    """Some parts are duplicates or out of sequence; see `verdicts`. Append the other parts again."""


class Verdict(IntEnum):
    """Reason why a sequenced run or a keyed message was refused."""

    DUPLICATE = 1
    UNKNOWN_PRODUCER = 2
    GAP = 3
    """The sequence skips at least one batch, or is older than the remembered batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartVerdict:
    """The verdict on `sequenced[index]` or `keyed[index]`. A duplicate has the offset of its first message."""

    keyed: bool
    index: int
    verdict: Verdict
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A refused append: nothing of it was written. Other appends of the same commit are not affected."""

    pid: int
    refusal: Refusal
    verdicts: Sequence[PartVerdict] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """An idempotency key, given by its hash, with the body hash and the partition of its first use."""

    incarnation: int
    key_hash: bytes
    body_hash: bytes
    partition: int
    memory: timedelta = IDEMPOTENCY_MEMORY
    """How long an append that this reservation leads to is remembered. The reservation is kept a little longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotBatch(StoredBatch):
    """A stored batch, and the bytes of the partition up to its end."""

    bytes_end: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """The head at the time of the read, and batches without a gap from the requested offset.

    If a verified segment holds the offset, the result has the segment and no batches, and the caller reads the file.
    """

    head: Head
    batches: Sequence[HotBatch]
    segment: Segment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """Number of rows that a trim deleted, and of periods whose keys and producers it deleted together."""

    heads: int = 0
    producers: int = 0
    keys: int = 0
    periods: int = 0


class PartitionStore(ChangeStore, Protocol):
    """Everything that one cell stores per partition.

    Methods take many items at once. No method is atomic across partitions.
    """

    @property
    def groups(self) -> GroupStore:
        """Journals, members and dead letters."""

    @property
    def cold(self) -> ColdStore:
        """Cold segments."""

    @property
    def staging(self) -> StagingStore:
        """Staged messages."""

    @property
    def scheduled(self) -> ScheduledStore:
        """Scheduled messages."""

    @property
    def elections(self) -> ElectionStore:
        """Runners of background work."""

    @property
    def relays(self) -> RelayStore: ...

    @property
    def timelines(self) -> TimelineStore:
        """Ends of the logs at failovers."""
        ...

    async def heads_create(self, pids: Sequence[int], epoch: int) -> None:
        """Create heads at offset 0 where there are none. Existing heads, even deleted ones, are unchanged."""
        ...

    async def heads_read(self, pids: Sequence[int]) -> list[Head]:
        """Return the newest heads of the partitions that exist, sorted by pid."""
        ...

    async def heads_close(self, pids: Sequence[int], state: HeadState) -> None:
        """Seal or delete heads. Deleting raises the log start to the next offset. It is safe to repeat."""
        ...

    async def epoch_raise(self, pids: Sequence[int], epoch: int) -> None:
        """Raise the epoch, so that appends with a lower epoch are refused. It is safe to repeat."""
        ...

    async def log_start_raise(self, starts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Raise the log start of each (pid, offset), and return (pid, number of messages that became unreadable).

        The log start never falls and never passes the next offset.
        """
        ...

    async def append(self, appends: Sequence[Append]) -> list[Appended | Refused]:
        """Append in one commit and return one result each, in order; at most one append per pid.

        Offsets are dense and in commit order, and `appended_at` never falls within a partition. Each append is written
        whole or not at all. Durable when this returns.
        """
        ...

    async def reserve(self, reservations: Sequence[Reservation], *, durable: bool) -> list[Reservation]:
        """Reserve keys, and return for each the reservation that holds: this one, or an earlier one.

        The first writer wins, across servers. A reservation counts from its last use with the same body. Without
        `durable`, a crash may lose it unless a later commit of this cell is durable; that is enough if the message goes
        to the same cell. Each key occurs once in a call.
        """
        ...

    async def read(self, pid: int, offset: int, *, max_messages: int, max_bytes: int) -> ReadResult | None:
        """Return batches from the one that holds `offset`, at least one if there is any; None without a head.

        The result ends after the batch that reaches `max_messages` or `max_bytes`, or earlier: a short result does not
        mean the end of the log. Raise `OffsetOutOfRange` below the log start or above the next offset.
        """
        ...

    async def read_many(
        self, asks: Sequence[tuple[int, int]], *, max_messages: int, max_bytes: int
    ) -> list[ReadResult | OffsetOutOfRange | None]:
        """Read many (pid, offset) like `read`, with the limits applied to each. Each pid occurs once.

        An `OffsetOutOfRange` is returned, not raised.
        """
        ...

    async def append_times(self, asks: Sequence[tuple[int, int]]) -> list[datetime | None]:
        """Return when the message at each (pid, offset) was appended; None if the log does not hold it.

        A message in a cold segment has the time of the segment's first message, so that no file is read.
        """
        ...

    async def offset_at_time(self, pid: int, time: datetime) -> int:
        """Return the first offset whose batch was appended at `time` or later, or the next offset.

        A cold segment counts as a whole: if the offset is inside a segment, the segment's first offset is returned.
        """
        ...

    async def offset_at_bytes(self, pid: int, max_bytes: int) -> int:
        """Return the lowest offset with at most `max_bytes` of whole batches after it. A segment is one batch."""
        ...

    async def roll(self, expected: int | None = None) -> int:
        """Create a new hot table and return the number of the active roll.

        The cost does not depend on the number of partitions. Appends go to the new table from now on. The call does
        nothing if `expected` is given and is no longer the active roll.
        """
        ...

    async def roll_active(self) -> ActiveRoll: ...

    async def rolls_drop(self, *, grace: timedelta = TIER_GRACE) -> list[int]:
        """Drop hot tables in which everything is retired, and return their numbers.

        Batches are retired if they are below the log start or in segments that were verified at least `grace` ago.
        Tables that are in use are left for the next call, so that this never waits long.
        """
        ...

    async def rolls_count(self, *, grace: timedelta = TIER_GRACE) -> RollCounts:
        """Count the hot tables, by what keeps them."""
        ...

    async def rolls_compact(
        self, after: int = 0, *, table_bytes: int = ROLL_BYTES, grace: timedelta = TIER_GRACE
    ) -> Compaction:
        """Copy what survives in mostly retired hot tables to kept tables, so that `rolls_drop` can drop the old ones.

        Looks at some tables with a number above `after`. A table is mostly retired if at most a quarter of it
        survives, or so little that a table of its own is a waste. A kept table takes up to about `table_bytes`.
        """
        ...

    async def trim(self, incarnation_memory: dict[int, timedelta]) -> Trimmed:
        """Delete old head rows (never the newest), and producers and idempotency keys that do not count any more.

        They stop to count without a trim: producers after `PRODUCER_MEMORY`, keys after their memory. The topics'
        memories are for keys that were stored without one.
        """
        ...

    async def partitions_remove(self, *, memory: timedelta = DELETED_MEMORY) -> int:
        """Remove the heads of partitions that were deleted at least `memory` ago, and return how many.

        A removed partition is never created again. Partitions with segments, or above a limit, are left for later.
        """
        ...

    async def clock(self) -> datetime:
        """Return the database's time, the only clock that decisions use."""
        ...

    async def durability(self) -> Durability: ...

    @property
    def timeline(self) -> int:
        """A number that rises when a promoted standby replaces the data; 1 if that never happened."""
        ...

    def on_replaced(self, call: Callable[[], None]) -> None:
        """Call `call` when a promoted standby has replaced the data, before any of the new data is returned.

        Offsets, versions and ids may then have another meaning. Calls that ran on the replaced data fail.
        """
        ...

    async def check(self) -> None:
        """Raise `Unavailable` if the database does not respond, is read-only, or was replaced."""
        ...

    async def close(self) -> None: ...
