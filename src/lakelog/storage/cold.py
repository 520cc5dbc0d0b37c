"""Storage protocols of cold segments: the segments that a cell has registered, and the orphans in the object store.

A segment is registered for an exact range of a partition. Readers use it instead of hot batches once its file was read
back and the segment was marked as verified. Stores never access the files. The contracts are the docstrings of the
methods; `tests/contract` checks every implementation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from lakelog.model.backup import BackupMark
from lakelog.model.lake import Registered, RegisterStatus, TierRange
from lakelog.model.load import Loaded, PartitionLoad
from lakelog.model.segment import Segment
from lakelog.storage.store import Head

MAX_RANGES = 1000
"""Maximum number of ranges of a partition that one call returns. Call again after tiering them."""

Placed = tuple[int, Segment]
"""A segment and the id of its partition."""

PlacedLoad = tuple[int, PartitionLoad]
"""A part of a load and the id of its partition."""

REASONS = {
    "missing": "The partition does not exist in this cell.",
    "deleted": "The topic was deleted.",
    "below": "The segment is wholly below the log start.",
    "beyond": "The segment ends above the high watermark.",
    "overlap": "The segment overlaps another segment.",
    "gap": "The segment does not follow the previous segment or the log start.",
    "boundary": "The segment does not end at the end of a hot batch.",
    "other": "The last message of the segment differs from the log.",
    "path": "Another segment has the same path.",
    "replaced": "A segment to replace is not registered and verified with these messages.",
    "swept": "The file was unregistered for too long and may be swept. Write it again under another name.",
    "sealed": "The partition is sealed.",
    "moved": "Messages were published to the partition since the files were written.",
    "epoch": "Partitions were added to the topic since the files were written.",
    "earlier": "The first message is older than the newest message of the partition.",
    "later": "The last message has a time in the future.",
}
"""Reasons why a segment was not registered or loaded, by code."""


def taken(reason: str) -> Registered:
    return Registered(status=RegisterStatus.TAKEN, reason=REASONS[reason])


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPlanRequest:
    """Selects the segments that overlap the offsets from `start` up to, not including, `end`. None means no end."""

    pid: int
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPlan:
    """The head and the verified segments of a partition at one moment, in order.

    The segments may have gaps between them.
    """

    head: Head
    segments: Sequence[Segment]


class ColdStore(Protocol):
    """The registered segments of one cell; the `cold` of a `PartitionStore`."""

    async def plans(self, asks: Sequence[ColdPlanRequest], *, limit: int | None = None) -> list[ColdPlan]:
        """Return plans from one snapshot, sorted by pid, without partitions that have no head.

        Segments below the log start are left out. Each plan has the first `limit` segments; by default, all.
        """
        ...

    async def search_time(self, pid: int, time: datetime) -> tuple[int, Segment | None]:
        """Return the same offset as `offset_at_time`.

        If the exact offset is inside a segment, return that segment too.
        """
        ...

    async def tierable(
        self, pids: Sequence[int], *, segment_bytes: int, min_bytes: int, min_age: timedelta
    ) -> list[tuple[int, TierRange]]:
        """Return ranges of whole hot batches after the last registered segment, or from the log start, by pid.

        Each range has about `segment_bytes` of payload, or ends where a day ends in UTC: messages of two days are in
        different ranges. The remainder is returned only if it has `min_bytes`, its first batch is older than `min_age`,
        or a message of a later day follows. Ranges are sorted by pid and offset, at most `MAX_RANGES` per partition.
        """
        ...

    async def register(self, segments: Sequence[Placed]) -> list[Registered]:
        """Register segments and return one result each, in the given order.

        Within a partition, segments are processed by offset. A segment is registered only if it follows the previous
        one without a gap (the first one must hold the log start), overlaps no other segment, and ends at the end of a
        hot batch. Repeating a registration returns the status `known`. After `OutcomeUnknown`, repeat the call.
        """
        ...

    async def replace(self, pid: int, old: Sequence[Segment], new: Sequence[Segment]) -> Registered:
        """Replace verified segments by others that hold the same messages, all or none.

        Both lists are sorted by offset, have no gaps and cover the same range; the caller checks that, and has read the
        new files back. The old segments must still be registered and verified with their paths and content hashes, the
        partition must exist, and the range must not be wholly below the log start. Readers use the new segments
        immediately. Repeating a replacement returns the status `known`. After `OutcomeUnknown`, repeat the call.
        """
        ...

    async def verified(self, segments: Sequence[Placed]) -> list[bool]:
        """Mark segments as verified, so that readers use them.

        Return for each whether it is registered under its path. Safe to repeat.
        """
        ...

    async def unregister(self, segments: Sequence[Placed]) -> list[bool]:
        """Remove segments that are not verified. Return for each whether it is unregistered now. Safe to repeat."""
        ...

    async def unverified(self, pids: Sequence[int]) -> list[Placed]:
        """Return the registered segments that are not verified, sorted by pid and offset."""
        ...

    async def paths_known(self, paths: Collection[str]) -> set[str]:
        """Return those of the paths that are registered, verified or not."""
        ...

    async def load(self, name: str, parts: Sequence[PlacedLoad]) -> list[Loaded]:
        """Append verified segments to partitions, and return one result each, in the given order.

        A part is loaded whole or not at all: its decision, its segments and the head with the new next offset are one
        commit. It is refused if the next offset is not its first offset, a message is older than the newest readable
        one or in the future, or the partition is not open at the epoch of the segments. The first decision about a name
        and a partition is final, and a repeat returns it. After `OutcomeUnknown`, repeat the call. The segments of a
        part follow each other from its first offset; the caller checks this.
        """
        ...

    async def loaded(self, name: str, pids: Sequence[int]) -> list[Loaded]:
        """Return the decisions about a load in these partitions, sorted by pid, with the status `known`."""
        ...

    async def trim(self) -> int:
        """Delete segments that are wholly below the log start or of deleted partitions, and return how many."""
        ...


class OrphanCatalog(Protocol):
    """The files of the object store that no cell has registered, in the catalog."""

    async def look(self, paths: Collection[str], *, min_age: timedelta) -> set[str]:
        """Return the paths that an earlier call recorded at least `min_age` ago, and record the other paths.

        A path that was recorded after a backup mark that has not ended is not returned: the file may have been in use
        when the mark was made.
        """
        ...

    async def backup_mark(self, name: str, keep: timedelta) -> BackupMark | None:
        """Make a mark that ends after this time, and return it; None if a mark of the name has not ended."""
        ...

    async def backup_marks(self) -> list[BackupMark]:
        """Return the marks that have not ended, the oldest first."""
        ...

    async def backup_mark_end(self, name: str) -> bool:
        """End a mark, and return whether it existed."""
        ...

    async def old(self, paths: Collection[str], *, age: timedelta) -> set[str]:
        """Return the paths that were first recorded at least `age` ago. The call records nothing."""
        ...

    async def forget(self, paths: Collection[str]) -> None:
        """Delete paths whose file is deleted or registered."""
        ...
