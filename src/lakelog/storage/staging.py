"""Storage protocols of staged messages: the decisions in the catalog, and what a cell stores until a decision exists.

Staged batches are kept until a decision about their write exists, so a caller that decides finds either all staged
batches or an earlier decision. The contracts are the docstrings of the methods; `tests/contract` checks every
implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Protocol

from lakelog.model.write import WriteKind
from lakelog.storage.store import Payload

MARK_MEMORY = timedelta(hours=24)
"""How long a partition remembers that a write is in its log; longer than any staging call may take."""
DECISION_MEMORY = timedelta(days=30)
"""How long the finished decision of a micro-batch is kept after the stream wrote a later one."""
NEWEST_DECISION_MEMORY = timedelta(days=365)
"""How long any other finished decision is kept. A stream that was stopped for longer may write a batch twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDecision:
    """The decision about a write: the attempts whose messages count. A finished or abandoned write has no attempts."""

    incarnation: int
    write_id: str
    attempts: Sequence[str]
    attempts_hash: bytes
    count: int
    finished: bool = False

    @property
    def is_abandoned(self) -> bool:
        return not self.attempts_hash


class WriteCatalog(Protocol):
    """The decisions about writes, in the catalog."""

    async def decide(
        self, decision: WriteDecision, epoch: int, kind: WriteKind = WriteKind.BATCH
    ) -> WriteDecision | None:
        """Record the decision and return the one that holds: this one, or an earlier one for the same write id.

        The first writer wins, across servers. Return None, and record nothing, if there is no earlier decision and the
        topic is deleted or at another epoch. Durable when this returns.
        """
        ...

    async def abandon(self, incarnation: int, write_id: str) -> WriteDecision:
        """Record that the write is abandoned, and return the decision that holds: this one, or an earlier one."""
        ...

    async def find(self, incarnation: int, write_id: str) -> WriteDecision | None: ...

    async def finish(self, incarnation: int, write_id: str) -> None:
        """Record that everything is promoted, and clear the attempts. Safe to repeat."""
        ...

    async def trim(self, memory: timedelta = DECISION_MEMORY, newest_memory: timedelta = NEWEST_DECISION_MEMORY) -> int:
        """Delete decisions that finished longer than `memory` ago, and return how many.

        The newest decision of each stream, and each decision of a batch write or an abandoned write, is kept for
        `newest_memory` while its topic exists.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """A batch that is stored and waits for a decision."""

    pid: int
    write_id: str
    attempt: str
    number: int
    epoch: int
    payload: Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """The number of messages that one attempt staged for a partition."""

    pid: int
    attempt: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedWrite:
    """A write with staged batches in this cell, and the age of the newest of them."""

    incarnation: int
    write_id: str
    age: timedelta


class PromoteStatus(IntEnum):
    DONE = 0
    """The messages of the write are in the partition's log, by this call or an earlier one, or none were staged."""
    MISSING = 1
    """The partition has no head here; nothing was changed."""
    SEALED = 2
    """The partition is sealed; nothing was changed."""
    DELETED = 3
    """The partition is deleted; its staged batches are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """The result of a promotion. `base` is None if the partition's log holds nothing of the write."""

    status: PromoteStatus
    base: int | None = None
    count: int = 0
    appended_at: datetime | None = None


class StagingStore(Protocol):
    """Staged messages of one cell; the `staging` of a `PartitionStore`."""

    async def stage(self, batches: Sequence[StagedBatch]) -> None:
        """Store batches in one commit. A batch that exists, by (pid, write id, attempt, number), is unchanged.

        Durable when this returns. Readers do not see staged batches.
        """
        ...

    async def staged_count(self, pids: Sequence[int], write_id: str, attempts: Sequence[str]) -> int:
        """Return how many messages these attempts staged for the write in these partitions."""
        ...

    async def staged_pids(self, incarnation: int, write_id: str) -> list[int]:
        """Return the partitions of the topic that have staged batches of the write."""
        ...

    async def staged_parts(self, incarnation: int, write_id: str) -> list[StagedPart]:
        """Return what each attempt staged for the write in the partitions of the topic, by partition and attempt."""
        ...

    async def staged_read(
        self, pid: int, write_id: str, attempt: str, *, after: int, limit_bytes: int
    ) -> list[StagedBatch]:
        """Return staged batches with numbers greater than `after`, in their order; empty at the end.

        The payloads have `limit_bytes` together, but at least one batch is returned. Batches that were promoted during
        the call may be missing.
        """
        ...

    async def promote(self, pid: int, write_id: str, attempts: Sequence[str]) -> Promoted:
        """Append the batches that the attempts staged for the partition, and remove those of other attempts.

        Batches are appended in the order of the attempts, then by number, in one transaction. A second call appends
        nothing, even if batches were staged in between. Offsets are dense, like those of an append; the epoch is the
        head's.
        """
        ...

    async def staged_writes(self, older_than: timedelta, *, limit: int = 1000) -> list[StagedWrite]:
        """Return writes to which nothing was staged for `older_than`, the oldest first."""
        ...

    async def promoted_trim(self, memory: timedelta = MARK_MEMORY) -> int:
        """Delete the marks of writes that were promoted longer than `memory` ago, and return how many."""
        ...
