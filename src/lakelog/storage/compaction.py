"""Hot tables: what is known about them, when their compaction is worth its cost, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

ROLL_BYTES = 1 << 30
"""Size at which a hot table is followed by the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRoll:
    """The hot table that takes new batches: its number, its size on disk and when it was created."""

    roll: int
    bytes: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RollCounts:
    """Number of hot tables, by what keeps them.

    Attributes:
        messages: Tables that are active, or hold messages that are not retired.
        writes: Other tables that hold the messages of writes which are not committed.
        transactions: Other tables. The next call drops them, unless a transaction uses them.
    """

    messages: int = 0
    writes: int = 0
    transactions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A look at some hot tables: the number of the last one, None after the last of all, and the bytes copied."""

    last: int | None
    bytes: int = 0


def is_mostly_retired(survives: int, size: int, table_bytes: int, *, is_kept: bool) -> bool:
    """Return whether copying the surviving bytes frees enough of a hot table of this size.

    A quarter at most, so that a byte is copied only if it frees three others. Tables with little in them are merged.
    """
    return 0 < survives <= (size // 4 if is_kept else max(size // 4, table_bytes // 64))
