"""The storage seams of cold segments: what a cell knows of its files, and which files nobody knows.

A segment is registered for an exact range of a partition, verified by whoever read its file again, and only then read
instead of hot batches. Stores never touch the files. Contracts stand here, on the methods; every implementation passes
`tests/contract`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from lakelog.model.lake import Registered, RegisterStatus, TierRange
from lakelog.model.segment import Segment
from lakelog.storage.store import Head

MAX_RANGES = 1000
"""So many ranges of a partition are offered at once; whoever has made segments of them asks again."""

Placed = tuple[int, Segment]
"""A segment and its pid."""

REASONS = {
    "missing": "The partition is not here.",
    "deleted": "The topic was deleted.",
    "below": "All of it is below the log start.",
    "beyond": "It ends above the high watermark.",
    "overlap": "Another segment holds some of it.",
    "gap": "It does not follow the segment before it, or the log start.",
    "boundary": "It does not end where a hot batch ends.",
    "other": "Its last message is another than the log's.",
    "path": "Its path is another segment's.",
    "swept": "Nobody knew its file for long, and it may be swept; write it again under another name.",
}
"""Why a segment was not registered."""


def taken(reason: str) -> Registered:
    return Registered(status=RegisterStatus.TAKEN, reason=REASONS[reason])


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPlanRequest:
    """Segments that hold anything from `start` up to, not including, `end`; without an end, to the last."""

    pid: int
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPlan:
    """The head and the verified segments of a partition at one moment, in order; there may be gaps between them."""

    head: Head
    segments: Sequence[Segment]


class ColdStore(Protocol):
    """What one cell keeps of segments; the `cold` of a `PartitionStore`."""

    async def plans(self, asks: Sequence[ColdPlanRequest]) -> list[ColdPlan]:
        """One view for all, by pid; those without a head are missing. Segments below the log start are not in it."""
        ...

    async def search_time(self, pid: int, time: datetime) -> tuple[int, Segment | None]:
        """As `offset_at_time`; with a segment where the exact offset is inside of it, behind the one answered."""
        ...

    async def tierable(
        self, pids: Sequence[int], *, segment_bytes: int, min_bytes: int, min_age: timedelta
    ) -> list[tuple[int, TierRange]]:
        """Runs of whole hot batches behind the last registered segment, or from the log start on, with their pids.

        Each has about `segment_bytes` of payload. What remains comes only if it has `min_bytes`, or its first batch
        `min_age`. In the order of pid and offset; at most `MAX_RANGES` of a partition.
        """
        ...

    async def register(self, segments: Sequence[Placed]) -> list[Registered]:
        """One answer each, in the order given; within a partition they are taken by their offsets.

        Registered is only what follows the segment before it without a gap (the first: holds the log start), overlaps
        none, and ends where a hot batch ends. A repeat is known. After `OutcomeUnknown`, repeat it.
        """
        ...

    async def verified(self, segments: Sequence[Placed]) -> list[bool]:
        """From now on readers use these; whether each is registered under that path. Safe to repeat."""
        ...

    async def unregister(self, segments: Sequence[Placed]) -> list[bool]:
        """Forgets segments that are not verified; whether each is not registered any more. Safe to repeat."""
        ...

    async def unverified(self, pids: Sequence[int]) -> list[Placed]:
        """Registered and not verified, in the order of pid and offset."""
        ...

    async def paths_known(self, paths: Collection[str]) -> set[str]:
        """Those of the paths that are registered, verified or not."""
        ...

    async def trim(self) -> int:
        """Forgets segments wholly below the log start, and those of deleted partitions; how many."""
        ...


class OrphanCatalog(Protocol):
    """Files that no cell knew when somebody looked: part of the catalog."""

    async def look(self, paths: Collection[str], *, min_age: timedelta) -> set[str]:
        """Those that an earlier look saw, `min_age` ago or before. Notes the others: this is their first look."""
        ...

    async def old(self, paths: Collection[str], *, age: timedelta) -> set[str]:
        """Those that were first seen so long ago. Notes nothing."""
        ...

    async def forget(self, paths: Collection[str]) -> None:
        """They are gone, or known: the next look at them is their first."""
        ...
