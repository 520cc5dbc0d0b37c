"""Values for contract tests of groups: new group ids, entries that are always in time, short forms."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from lakelog.storage.groups import (
    CommitResult,
    CommitStatus,
    GroupStore,
    JournalEntry,
    JournalRequest,
    JournalRow,
    NewDeadLetter,
)

ALWAYS = 1 << 60


def new_group() -> int:
    return secrets.randbelow(1 << 60) + 1


def body_of(version: int) -> bytes:
    return b"body of %d" % version


def entry(
    group_id: int,
    pid: int,
    version: int,
    *,
    snapshot: bool = False,
    bounds: tuple[int, int] = (0, ALWAYS),
    dead: Sequence[NewDeadLetter] = (),
    nonces: tuple[int, int] = (0, 0),
) -> JournalEntry:
    return JournalEntry(
        group_id=group_id,
        pid=pid,
        version=version,
        snapshot=snapshot,
        body=body_of(version),
        not_before_ms=bounds[0],
        not_after_ms=bounds[1],
        nonce=nonces[0],
        after_nonce=nonces[1],
        dead_letters=dead,
    )


def letter(
    offset: int,
    *,
    epoch: int = 0,
    reason: str = "boom",
    payload: bytes | None = b"payload",
    traceback: str | None = None,
) -> NewDeadLetter:
    return NewDeadLetter(
        offset=offset,
        epoch=epoch,
        deliveries=5,
        failures=4,
        reason=reason,
        owner="worker-1",
        payload=payload,
        traceback=traceback,
    )


async def commit(groups: GroupStore, *entries: JournalEntry) -> list[CommitStatus]:
    return [answer.status for answer in await groups.journals_commit(entries)]


async def commit_one(groups: GroupStore, new: JournalEntry) -> CommitResult:
    (answer,) = await groups.journals_commit([new])
    return answer


async def write(
    groups: GroupStore, group_id: int, pid: int, versions: Sequence[int], *, snapshots: Sequence[int] = ()
) -> None:
    """Commit these versions, one after another."""
    for version in versions:
        statuses = await commit(groups, entry(group_id, pid, version, snapshot=version in snapshots))
        assert statuses == [CommitStatus.OK], f"version {version}"


async def rows_of(groups: GroupStore, group_id: int, pid: int, after: int = 0) -> list[JournalRow]:
    (read,) = await groups.journals_read([JournalRequest(group_id=group_id, pid=pid, after=after)])
    return list(read.rows)


async def versions_of(groups: GroupStore, group_id: int, pid: int, after: int = 0) -> list[int]:
    return [row.version for row in await rows_of(groups, group_id, pid, after)]
