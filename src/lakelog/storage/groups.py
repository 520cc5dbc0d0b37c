"""The storage seams of groups: what the catalog knows of them, and what a cell keeps for them.

A journal of (group, partition) holds the decisions of `lakelog.coordinator`: one inserted row per commit. A decision is
made against a version of the state, and `journals_commit` writes it only if that version is still the last. Bodies are
bytes to a store. Times are milliseconds since 1970 on the database's clock. Contracts stand here, on the methods; every
implementation passes `tests/contract`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum, StrEnum
from typing import Protocol

from lakelog.model.group import Group, GroupKind, GroupSettings, GroupTopic
from lakelog.model.topic import Scope, Topic
from lakelog.storage.store import Append, Appended, Refused

JOURNAL_GRACE_SECONDS = 60.0
"""A snapshot is so old before the rows that it made superfluous go: older than any statement of a server may get."""
JOURNAL_READ_ROWS = 1000
"""An asker who is further behind than so many rows is given the newest snapshot and what follows it."""


GROUP_MEMORY = timedelta(hours=1)
"""So long after a group's delete its rows are looked for in the cells: who did not hear of it may have written some."""


def storable(text: str) -> str:
    """The text without what PostgreSQL cannot store: one such reason would hold up all entries of its commit."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """A server process that others can reach."""

    server_id: str
    address: str


class GroupCatalog(Protocol):
    """Groups, what they read, and which servers are alive: part of the catalog."""

    async def group_create(self, scope: Scope, name: str, kind: GroupKind, settings: GroupSettings, cell: int) -> Group:
        """The group of that name: a new one at version 1, or the one that was there first, as it is."""
        ...

    async def group_find(self, scope: Scope, name: str) -> Group | None: ...

    async def group_list(self, scope: Scope, *, after: str = "", limit: int = 1000) -> list[Group]:
        """Groups by name, those behind `after`."""
        ...

    async def group_alter(self, group: Group, settings: GroupSettings, paused: frozenset[str]) -> Group:
        """With the next version.

        `Conflict` if the group's version is no longer the one given, `GroupNotFound` if it is gone.
        """
        ...

    async def group_delete(self, group: Group) -> bool:
        """Whether this call deleted it, with its readings. A group made again has another id."""
        ...

    async def group_deleted(self, *, limit: int = 1000) -> list[int]:
        """Ids of deleted groups of which cells may still hold something: a server may have missed the delete."""
        ...

    async def group_forget(self, group_ids: Collection[int]) -> None:
        """No cell holds anything of them any more. Those deleted within `GROUP_MEMORY` are listed on all the same."""
        ...

    async def group_topic_create(self, reading: GroupTopic) -> GroupTopic:
        """The reading that holds: this one, or the one that was there first. `GroupNotFound` if the group is gone."""
        ...

    async def group_topic_find(self, group_id: int, incarnation: int) -> GroupTopic | None: ...

    async def group_topic_list(self, *groups: Group) -> list[tuple[Topic, GroupTopic]]:
        """What the groups read, of open topics, by the group's id and the topic's name."""
        ...

    async def group_topic_list_by_topic(self, topic: Topic) -> list[tuple[Group, GroupTopic]]:
        """Who reads the topic, by the group's name."""
        ...

    async def group_topic_seek(self, reading: GroupTopic, targets: Sequence[int | None]) -> GroupTopic:
        """The reading with the next epoch and these targets. `Conflict` if its epoch is no longer the one given."""
        ...

    async def server_seen(self, server: ServerInfo, *, memory_seconds: float) -> list[ServerInfo]:
        """Notes that this server is alive; those that were seen within the memory, this one included, by id."""
        ...

    async def server_gone(self, server_id: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """One commit. A snapshot's body is the whole state, any other's the events of that commit."""

    version: int
    snapshot: bool
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRequest:
    """`after` is the version that the asker has; 0 if none."""

    group_id: int
    pid: int
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRead:
    """Rows without a gap: those behind `after`, or from the newest snapshot on (without any, from the first row).

    The latter if some of those behind `after` were trimmed, if they are more than `JOURNAL_READ_ROWS` and a snapshot is
    among them, or if the journal does not reach to `after`. Empty: there is nothing newer (with `after` 0: the journal
    does not exist).
    """

    rows: Sequence[JournalRow]
    clock_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDeadLetter:
    """A dead letter to be written, with the database's time, in the commit that gives the message up.

    `payload` is a batch of this one message, or None if the message was out of reach already.
    """

    offset: int
    epoch: int
    deliveries: int
    failures: int
    reason: str
    owner: str
    payload: bytes | None
    traceback: str | None = None
    """Of the last failure, at most `MAX_TRACEBACK_BYTES`; None if its caller sent none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One decision: the row of `version`, which must follow the journal's last (1 begins it).

    It holds only if the database's clock is between the bounds when it is written, both included.
    """

    group_id: int
    pid: int
    version: int
    snapshot: bool
    body: bytes
    not_before_ms: int
    not_after_ms: int
    dead_letters: Sequence[NewDeadLetter] = ()


class CommitStatus(IntEnum):
    OK = 0
    CONFLICT = 1
    """The journal's last version is another: read on, and decide again."""
    TIME = 2
    """The clock is outside the bounds: decide again with `clock_ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    status: CommitStatus
    clock_ms: int


class DeadLetterState(StrEnum):
    """Dead -> redriven or discarded; never back."""

    DEAD = "dead"
    REDRIVEN = "redriven"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterKey:
    """Within a group: a message can die once per position epoch."""

    pid: int
    offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetter:
    """`redriven_to` is the offset, in the same partition, of what was appended for it."""

    group_id: int
    key: DeadLetterKey
    state: DeadLetterState
    at_ms: int
    deliveries: int
    failures: int
    reason: str
    owner: str
    payload: bytes | None
    redriven_to: int | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersRead:
    """The newest membership of a group: version 0 and no body if there is none. `seen_ms` is by member id."""

    version: int
    body: bytes
    seen_ms: Mapping[str, int]
    clock_ms: int


class GroupStore(Protocol):
    """Everything that one cell keeps for groups; the `groups` of a `PartitionStore`."""

    async def journals_read(self, asks: Sequence[JournalRequest]) -> list[JournalRead]:
        """One answer each, in the order asked."""
        ...

    async def journals_newest(self, places: Sequence[tuple[int, int]]) -> list[JournalRow | None]:
        """Per (group id, pid), the last row of its journal, in the order asked; None if the journal does not exist."""
        ...

    async def journals_commit(self, entries: Sequence[JournalEntry]) -> list[CommitResult]:
        """One commit for all, one answer each, in the order given; at most one entry per (group, partition).

        Each entry is all or nothing, its dead letters included, and none holds up another. Durable when this returns.
        An entry whose predecessor was trimmed is a conflict like any other. After `OutcomeUnknown`, `journals_read`
        says what was written.
        """
        ...

    async def journals_trim(self, dropped_groups: Collection[int] = ()) -> int:
        """Forgets rows that a snapshot of an age of `JOURNAL_GRACE_SECONDS` made superfluous, members' too.

        Everything of deleted partitions and of `dropped_groups` goes at once, with the dead letters. How many rows.
        Done in many short steps; nothing if another process is about it.
        """
        ...

    async def members_read(self, group_id: int) -> MembersRead: ...

    async def members_list(self, group_ids: Sequence[int]) -> list[MembersRead]:
        """`members_read` of many groups at once, in the order asked."""
        ...

    async def members_write(self, group_id: int, version: int, body: bytes) -> bool:
        """Whether `version` followed the last one, and was written. Durable when this returns."""
        ...

    async def heartbeats_write(self, seen: Collection[tuple[int, str]]) -> int:
        """Notes that these members, as (group id, member id), were seen now; the clock. May be lost in a crash."""
        ...

    async def heartbeats_drop(self, group_id: int, member_ids: Collection[str]) -> None: ...

    async def dead_list(
        self,
        group_id: int,
        pids: Sequence[int],
        *,
        state: DeadLetterState = DeadLetterState.DEAD,
        after: DeadLetterKey | None = None,
        limit: int = 100,
    ) -> list[StoredDeadLetter]:
        """In the order of pid, offset, epoch; those behind `after`."""
        ...

    async def dead_count(self, group_id: int, pids: Sequence[int]) -> int:
        """How many are in the state dead."""
        ...

    async def dead_counts(self, pids: Mapping[int, Sequence[int]], *, limit: int) -> dict[int, int]:
        """By group id, how many are in the state dead in these partitions of the group; no more than `limit` count."""
        ...

    async def dead_find(self, group_id: int, pid: int, offset: int) -> list[StoredDeadLetter]:
        """All that the group has for this message, the newest epoch last."""
        ...

    async def dead_discard(self, group_id: int, keys: Sequence[DeadLetterKey]) -> int:
        """How many of them were dead, and are discarded now."""
        ...

    async def dead_redrive(
        self, group_id: int, keys: Sequence[DeadLetterKey], append: Append
    ) -> tuple[Appended | Refused | None, list[bool]]:
        """Appends `append` (all keys are of its partition; message n is for keys[n]) and marks the dead letters.

        One transaction: all, or nothing. If any of them is not in the state dead, nothing is done: (None, which are).
        A key may stand only once in a call. After `OutcomeUnknown`, `dead_find` says whether it was done.
        """
        ...
