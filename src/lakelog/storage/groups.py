"""Storage protocols of groups: their rows in the catalog, and what a cell stores for them.

The journal of a (group, partition) holds the decisions of `lakelog.coordinator`, one inserted row per commit. A
decision is made against a version of the state, and `journals_commit` writes it only if that version is still the
last. Stores treat bodies as opaque bytes. Times are milliseconds since 1970 on the database's clock. The contracts are
the docstrings of the methods; `tests/contract` checks every implementation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Protocol

from lakelog.model.dead_letter_retention import DeadLetterRetention
from lakelog.model.group import Group, GroupKind, GroupSettings, GroupTopic
from lakelog.model.incident import Incident
from lakelog.model.kinds import DeadLetterState
from lakelog.model.levels import SUPPORTED
from lakelog.model.topic import Scope, Topic
from lakelog.storage.changes import ChangedVersions, KnownVersions
from lakelog.storage.incidents import IncidentStore
from lakelog.storage.store import Append, Appended, Refused

JOURNAL_GRACE_SECONDS = 60.0
"""Minimum age of a snapshot before the rows that it replaces are deleted. No statement of a server runs this long."""
JOURNAL_READ_ROWS = 1000
"""A reader that is further behind than this number of rows gets the newest snapshot and the rows after it."""
ONCE_MEMORY = timedelta(hours=24)
"""How long a group remembers a value of which it accepted a run."""
GROUP_MEMORY = timedelta(hours=1)
"""How long the rows of a deleted group are searched for, because a server that missed the delete may still write
some.
"""


def storable(text: str) -> str:
    """Return the text without characters that PostgreSQL cannot store.

    One such character in a reason would fail all entries of the commit.
    """
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """A server process that other servers can reach."""

    server_id: str
    address: str
    level: int = SUPPORTED
    """The highest feature level that the server supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveServers:
    """The live servers, sorted by id, and the feature level of the installation."""

    servers: Sequence[ServerInfo]
    level: int


class GroupCatalog(Protocol):
    """The groups of the catalog, the topics that they read, and the live servers."""

    async def group_create(self, scope: Scope, name: str, kind: GroupKind, settings: GroupSettings, cell: int) -> Group:
        """Create the group at version 1, or return the existing group with this name unchanged."""
        ...

    async def group_find(self, scope: Scope, name: str) -> Group | None: ...

    async def group_list(self, scope: Scope, *, after: str = "", limit: int = 1000, contains: str = "") -> list[Group]:
        """Return open groups whose names contain the text sorted by name, starting after `after`."""
        ...

    async def group_list_retention(self, *, after: int = 0, limit: int = 1000) -> list[Group]:
        """Return open groups of all environments that limit their dead letters, by id, starting after `after`."""
        ...

    async def group_alter(self, group: Group, settings: GroupSettings, paused: frozenset[str]) -> Group:
        """Write new settings and pauses, and return the group with its next version.

        Raise `Conflict` if the group's version is not the given one, and `GroupNotFound` if the group is deleted.
        """
        ...

    async def group_delete(self, group: Group) -> bool:
        """Delete the group and its topics, and return whether this call deleted it.

        A group created later has another id.
        """
        ...

    async def group_deleted(self, *, limit: int = 1000) -> list[int]:
        """Return the ids of deleted groups that cells may still store rows for: a server may have missed the delete."""
        ...

    async def group_forget(self, group_ids: Collection[int]) -> None:
        """Record that no cell stores anything for these groups.

        `group_deleted` continues to list those that were deleted within `GROUP_MEMORY`.
        """
        ...

    async def group_topic_create(self, group_topic: GroupTopic) -> GroupTopic:
        """Create the group's topic, or return the existing one. Raise `GroupNotFound` if the group is deleted."""
        ...

    async def group_topic_find(self, group_id: int, incarnation: int) -> GroupTopic | None: ...

    async def group_topic_list(self, *groups: Group) -> list[tuple[Topic, GroupTopic]]:
        """Return the open topics that the groups read, sorted by group id and topic name."""
        ...

    async def group_topic_list_by_topic(self, topic: Topic) -> list[tuple[Group, GroupTopic]]:
        """Return the groups that read the topic, sorted by name."""
        ...

    async def group_topic_seek(self, group_topic: GroupTopic, targets: Sequence[int | None]) -> GroupTopic:
        """Write the next epoch with these targets and the given timelines.

        Raise `Conflict` if the stored epoch is not the given one.
        """
        ...

    async def versions_read(self, known: KnownVersions) -> ChangedVersions:
        """Return the groups and topics that differ from the known ones or are deleted, with one query."""
        ...

    async def server_seen(self, server: ServerInfo, *, memory_seconds: float) -> LiveServers:
        """Record that this server is alive. Return the servers seen within `memory_seconds`."""
        ...

    async def server_gone(self, server_id: str) -> None: ...

    async def server_keys(self, new: bytes, *, rotate_seconds: float, keep_seconds: float) -> list[bytes]:
        """Return the keys that sign calls between servers, newest first.

        Store `new` if the newest key is older than `rotate_seconds`, and delete keys older than `keep_seconds`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """One commit. The body is the whole state in a snapshot, otherwise the events of the commit.

    After a failover that lost rows, a version can exist again with another body: its nonce then differs.
    """

    version: int
    snapshot: bool
    body: bytes
    nonce: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRequest:
    """Requests the rows of one journal. `after` is the version that the caller has, 0 for none, and its nonce."""

    group_id: int
    pid: int
    after: int = 0
    after_nonce: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRead:
    """Rows without a gap: those after `after`, or those from the newest snapshot on (without one, from the first row).

    The rows begin at the snapshot if some rows after `after` were trimmed, if there are more than `JOURNAL_READ_ROWS`
    and a snapshot is among them, if the journal ends before `after`, or if the row `after` has another nonce. No rows
    means that there is nothing newer or, if `after` is 0, that the journal does not exist.
    """

    rows: Sequence[JournalRow]
    clock_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDeadLetter:
    """A dead letter that is written, with the database's time, in the commit that ends the message.

    `payload` is a batch of this one message, or None if the message was no longer readable.
    """

    offset: int
    epoch: int
    deliveries: int
    failures: int
    reason: str
    owner: str
    payload: bytes | None
    traceback: str | None = None
    """Traceback of the last failure, at most `MAX_TRACEBACK_BYTES`; None if the caller sent none."""
    fingerprint: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One decision: the row with `version`, which must follow the last row of the journal. The first version is 1.

    `after_nonce` is the nonce of the row that the decision was based on; 0 for the first version.
    The row is written only if the database's clock is within the bounds, both included.
    """

    group_id: int
    pid: int
    version: int
    snapshot: bool
    body: bytes
    not_before_ms: int
    not_after_ms: int
    nonce: int = 0
    after_nonce: int = 0
    dead_letters: Sequence[NewDeadLetter] = ()
    incarnation: int = 0
    """The topic of the partition."""
    incidents: Sequence[Incident] = ()
    accepted_values: Sequence[bytes] = ()
    """Hashes of values of which the decision accepts a run. The entry is written only if the group accepted no run with
    any of them in this topic during `ONCE_MEMORY`, and they are remembered with it. Each occurs once in an entry.
    """


class CommitStatus(IntEnum):
    """Result of a journal commit."""

    OK = 0
    CONFLICT = 1
    """The journal has another last row. Read the new rows and decide again."""
    TIME = 2
    """The clock is outside the bounds. Decide again with `clock_ms`."""
    REPEATED = 3
    """The group has accepted runs with some of the values, which `taken` names. Decide again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    status: CommitStatus
    clock_ms: int
    taken: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterKey:
    """Key of a dead letter within a group: a message becomes a dead letter at most once per position epoch."""

    pid: int
    offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetter:
    """A dead letter. `redriven_to` is the offset, in the same partition, of the message that was redriven."""

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
    fingerprint: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersRead:
    """The newest membership of a group, or version 0 and an empty body. `seen_ms` has times by member id."""

    version: int
    body: bytes
    seen_ms: Mapping[str, int]
    clock_ms: int


class GroupStore(Protocol):
    """Everything that one cell stores for groups; the `groups` of a `PartitionStore`."""

    @property
    def incidents(self) -> IncidentStore: ...

    async def journals_read(self, asks: Sequence[JournalRequest]) -> list[JournalRead]:
        """Return one result per request, in the order of the requests."""
        ...

    async def journals_newest(self, places: Sequence[tuple[int, int]]) -> list[JournalRow | None]:
        """Return the last row of the journal of each (group id, pid), in order; None if the journal does not exist."""
        ...

    async def journals_commit(self, entries: Sequence[JournalEntry]) -> list[CommitResult]:
        """Write entries in one commit and return one result each, in order; at most one entry per (group, partition).

        Each entry is written whole, with dead letters and incidents, or not at all, independently of the others. It is
        durable when this method returns. An entry whose predecessor was trimmed is a conflict, and so is one that
        accepts the same value as an earlier entry of the commit. After `OutcomeUnknown`, `journals_read` shows what was
        written.
        """
        ...

    async def once_find(self, group_id: int, incarnation: int, values: Collection[bytes]) -> frozenset[bytes]:
        """Return the values, as hashes, of which the group has accepted a run in the topic during `ONCE_MEMORY`."""
        ...

    async def journals_trim(self, dropped_groups: Collection[int] = ()) -> int | None:
        """Delete journal and membership rows that a snapshot older than `JOURNAL_GRACE_SECONDS` replaces.

        All rows of deleted partitions and of `dropped_groups` are deleted, with their dead letters. Return the number
        of rows. The method works in many short steps, and returns None if another process trims: then some rows may
        be left.
        """
        ...

    async def members_read(self, group_id: int) -> MembersRead: ...

    async def members_list(self, group_ids: Sequence[int]) -> list[MembersRead]:
        """Return the memberships of many groups, in the order of the ids."""
        ...

    async def members_write(self, group_id: int, version: int, body: bytes) -> bool:
        """Write the membership if `version` follows the last one, and return whether it was written.

        It is durable on return.
        """
        ...

    async def heartbeats_write(self, seen: Collection[tuple[int, str]]) -> int:
        """Record that these members, as (group id, member id), were seen now. Return the clock in milliseconds.

        A crash may lose this record.
        """
        ...

    async def heartbeats_drop(self, group_id: int, member_ids: Collection[str]) -> None: ...

    async def dead_list(
        self,
        group_id: int,
        pids: Sequence[int],
        *,
        state: DeadLetterState = DeadLetterState.DEAD,
        fingerprint: int | None = None,
        after: DeadLetterKey | None = None,
        limit: int = 100,
    ) -> list[StoredDeadLetter]:
        """Return dead letters in this state sorted by pid, offset and epoch, starting after `after`."""
        ...

    async def dead_count(self, group_id: int, pids: Sequence[int]) -> int:
        """Return how many dead letters are in the state dead."""
        ...

    async def dead_counts(self, pids: Mapping[int, Sequence[int]], *, limit: int | None = None) -> dict[int, int]:
        """Return by group id how many dead letters of these partitions are in the state dead, at most `limit` each."""
        ...

    async def dead_find(self, group_id: int, pid: int, offset: int) -> list[StoredDeadLetter]:
        """Return all dead letters of the group for this message, the newest epoch last."""
        ...

    async def dead_discard(self, group_id: int, keys: Sequence[DeadLetterKey]) -> int:
        """Discard dead letters in the state dead, and return how many there were."""
        ...

    async def dead_purge(self, group_id: int, pids: Sequence[int], *, age: timedelta, limit: int) -> int:
        """Delete redriven and discarded dead letters that died at least `age` ago, and return how many.

        At most `limit` are deleted, those of each partition that died first. Dead letters in the state dead stay.
        """
        ...

    async def dead_expire(
        self, group_id: int, pids: Sequence[int], retention: DeadLetterRetention, *, limit: int
    ) -> int:
        """Delete dead letters in any state that exceed the retention, and return how many.

        At most `limit` are deleted, those of each partition that died first. In each partition, `max_count` applies to
        those in the state dead, and separately to the others. Dead letters that another call changes at the same time
        stay until the next call.
        """
        ...

    async def dead_redrive(
        self, group_id: int, keys: Sequence[DeadLetterKey], append: Append
    ) -> tuple[Appended | Refused | None, list[bool]]:
        """Append `append` (all keys are of its partition; message n is for keys[n]) and mark the dead letters.

        Everything happens in one transaction. If any dead letter is not in the state dead, nothing changes, and the
        result is None with a list that says which of them are dead. Each key occurs once in a call. After
        `OutcomeUnknown`, `dead_find` shows whether it was done.
        """
        ...
