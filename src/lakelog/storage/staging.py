"""The storage seams of staged messages: the decisions in the catalog, and what a cell keeps until one is made.

Nothing that is staged is removed before a decision about its write stands, so that whoever decides finds either all of
what was staged or a decision that was made already. Contracts stand here, on the methods; every implementation passes
`tests/contract`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Protocol

from lakelog.storage.store import Payload

MARK_MEMORY = timedelta(hours=24)
"""So long a partition knows that a write is in its log; longer than any call that stages may be on its way."""
DECISION_MEMORY = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDecision:
    """What stands about a write. Without attempts it is finished, or was given up."""

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
    """The decisions: part of the catalog."""

    async def decide(self, decision: WriteDecision, epoch: int) -> WriteDecision | None:
        """The decision that stands for its write id: this one, or the earlier. First writer wins, across servers.

        None, and nothing is decided, if none stands and the topic is gone or at another epoch. Durable when this
        returns.
        """
        ...

    async def abandon(self, incarnation: int, write_id: str) -> WriteDecision:
        """The decision that stands: nobody's, or the earlier."""
        ...

    async def find(self, incarnation: int, write_id: str) -> WriteDecision | None: ...

    async def finish(self, incarnation: int, write_id: str) -> None:
        """Everything is promoted: the attempts are forgotten. Safe to repeat."""
        ...

    async def trim(self, memory: timedelta = DECISION_MEMORY) -> int:
        """Forgets finished decisions so long after, but never the newest of a writer in a topic that is there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """A batch that waits for a decision."""

    pid: int
    write_id: str
    attempt: str
    number: int
    epoch: int
    payload: Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedWrite:
    """A write of which something is staged in this cell, and how long ago the last of it was."""

    incarnation: int
    write_id: str
    age: timedelta


class PromoteStatus(IntEnum):
    DONE = 0
    """The partition's share is in its log, by this call or an earlier one, or there was none."""
    MISSING = 1
    """The partition has no head here; nothing was changed."""
    SEALED = 2
    """Nothing was changed."""
    DELETED = 3
    """What was staged is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """`base` is None if nothing of the write is in the partition's log."""

    status: PromoteStatus
    base: int | None = None
    count: int = 0
    appended_at: datetime | None = None


class StagingStore(Protocol):
    """Staged messages of one cell; the `staging` of a `PartitionStore`."""

    async def stage(self, batches: Sequence[StagedBatch]) -> None:
        """One commit for all. One that is there already, by (pid, write id, attempt, number), stays as it is.

        Durable when this returns. No reader sees any of it.
        """
        ...

    async def staged_count(self, pids: Sequence[int], write_id: str, attempts: Sequence[str]) -> int:
        """How many messages these attempts have staged for the write in these partitions."""
        ...

    async def staged_pids(self, incarnation: int, write_id: str) -> list[int]:
        """The topic's partitions for which anyone has staged anything for the write."""
        ...

    async def promote(self, pid: int, write_id: str, attempts: Sequence[str]) -> Promoted:
        """Appends what the attempts staged for the partition, in their order and by number; removes what others did.

        One transaction. The second call appends nothing, also if something was staged in between. Offsets are dense,
        as an append's are; the epoch is the head's.
        """
        ...

    async def staged_writes(self, older_than: timedelta, *, limit: int = 1000) -> list[StagedWrite]:
        """Those to which nothing was added for so long, the oldest first."""
        ...

    async def promoted_trim(self, memory: timedelta = MARK_MEMORY) -> int:
        """Forgets that writes were promoted, so long after."""
        ...
