"""Storage protocol of changes: announcements between processes, and one query for everything that a process watches.

An announcement may be lost, so a process compares the rows that its callers wait for with the store from time to time.
Both only shorten waiting: every decision is checked when it is written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

TOPIC_MARK = 0xFFFF
"""The partition number in the announcement of a changed topic. No topic has this many partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRows:
    """The newest rows of one cell that a process knows."""

    heads: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """The log start and the next offset, by pid."""
    journals: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """The version and the nonce, by group id and pid; zeros for a journal without rows."""
    members: Mapping[int, int] = field(default_factory=dict)
    """The version of the membership, by group id; 0 for a group without members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """The rows of one cell that differ from the known ones."""

    heads: Mapping[int, tuple[int, int]]
    """The present log start and next offset, by pid. A partition that does not exist is left out."""
    journals: AbstractSet[tuple[int, int]]
    members: AbstractSet[int]
    clock_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownVersions:
    """The versions of rows of the catalog that a process knows."""

    groups: Mapping[int, int] = field(default_factory=dict)
    """The version, by group id."""
    group_topics: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """The position epoch, by group id and incarnation of the topic."""
    topics: Mapping[int, int] = field(default_factory=dict)
    """The version, by incarnation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedVersions:
    """The rows of the catalog that were changed or deleted."""

    groups: AbstractSet[int]
    """The ids of groups that changed, or whose position in one of the topics changed."""
    topics: AbstractSet[int]


class ChangeStore(Protocol):
    """Changes of one cell, a part of `PartitionStore`."""

    async def changes_read(self, known: KnownRows) -> ChangedRows:
        """Return the rows that differ from the known ones, with one query."""
        ...

    async def announce(self, numbers: Collection[int]) -> None:
        """Notify other processes of changes.

        A number is the pid of a partition that grew, -group_id of a changed group, or the id of partition `TOPIC_MARK`
        of a changed topic. A notification may be lost, because it only shortens waiting.
        """
        ...

    def announcements(self) -> AsyncIterator[set[int]]:
        """Yield the numbers that other processes announced. An empty set means that anything may have changed."""
        ...

    @property
    def senders(self) -> int:
        """The number of other processes whose announcements arrived in the last seconds."""
        ...

    @property
    def is_listening(self) -> bool:
        """Whether a reader of `announcements` receives them.

        False if nothing listens, or while the connection may be lost.
        """
        ...
