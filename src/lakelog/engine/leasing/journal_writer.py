"""Writes decisions to journals: one commit for all journals of a cell, and one outcome for each.

Every operation can be decided again: after a conflict, or a commit of unknown outcome, a journal has no state and its
operations are pending again.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from lakelog import failpoints
from lakelog.coordinator.leasing.operations import NothingAvailable, Operation, Reply
from lakelog.engine.clock import Clock
from lakelog.engine.groups.activity import GroupActivity
from lakelog.engine.leasing.journal import Journal, PendingCommit, PendingOperation, answer_all, fail
from lakelog.engine.leasing.loader import Loader
from lakelog.engine.leasing.partition_stop import as_error
from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable
from lakelog.meters import CONFLICTS, GROUP_COMMITS
from lakelog.storage.groups import CommitResult, CommitStatus
from lakelog.storage.store import PartitionStore

_TRIES = 40
_PAUSE_SECONDS = 0.002
"""Average pause after a conflict, doubled with each attempt. Without it, two servers could conflict forever."""
_TRUST_SECONDS = 1.0
"""For this time after a read of the journal, `NothingAvailable` is answered without reading it again."""

Orphans = list[tuple[Journal, Operation, Reply]]
"""Replies to callers that gave up."""


class JournalWriter:
    """Writes to the journals of all cells; one per engine."""

    def __init__(
        self,
        cells: Mapping[int, PartitionStore],
        clocks: Mapping[int, Clock],
        loader: Loader,
        heard: Callable[[int], None],
        activity: GroupActivity | None,
    ) -> None:
        """Create the writer. `heard` is called with each cell that responds. `activity` receives the written events."""
        self._cells = cells
        self._clocks = clocks
        self._loader = loader
        self._heard = heard
        self._random = random.Random(secrets.randbits(64))
        self._activity = activity

    async def write(self, cell: int, commits: Sequence[PendingCommit]) -> Orphans:
        """Commit the entries, and answer the callers of those that were written."""
        entries = [commit.entry for commit in commits if commit.entry is not None]
        try:
            if failpoints.armed:
                failpoints.hit("leases.before_commit")
            began = time.perf_counter()
            answers = await self._cells[cell].groups.journals_commit(entries)
            GROUP_COMMITS.add(time.perf_counter() - began, len(entries))
            self._heard(cell)
            if failpoints.armed:
                failpoints.hit("leases.after_commit")
        except (OutcomeUnknown, Unavailable) as error:
            for commit in commits:
                self._again(commit, error)
            return []
        except Exception as error:
            if len(commits) == 1:
                fail(commits[0], as_error(error), self._clocks[cell])
                return []
            # One of them may be impossible to write. If one was written, its version conflicts and it is decided again.
            return [orphan for commit in commits for orphan in await self.write(cell, [commit])]
        except BaseException:
            for commit in commits:
                commit.journal.state = None
            raise
        orphans: Orphans = []
        for commit, answer in zip(commits, answers, strict=True):
            try:
                orphans += self._written(self._clocks[cell], commit, answer)
            except Exception as error:
                fail(commit, OutcomeUnknown.after(as_error(error)), self._clocks[cell])
        return orphans

    def _written(self, clock: Clock, commit: PendingCommit, answer: CommitResult) -> Orphans:
        if answer.status is CommitStatus.TIME:
            clock.corrected(answer.clock_ms)
        else:
            clock.heard(answer.clock_ms)
        if answer.status is CommitStatus.REPEATED:
            for pending in commit.pending:
                pending.take_values(answer.taken)
        if answer.status is not CommitStatus.OK:
            if answer.status is CommitStatus.CONFLICT:
                CONFLICTS.add(0.0)
            self._again(commit, Unavailable("Too many servers change the group's progress at once; try again."))
            return []
        journal, entry = commit.journal, commit.entry
        assert entry is not None
        journal.version, journal.nonce = entry.version, entry.nonce
        journal.since_snapshot = 0 if entry.snapshot else journal.since_snapshot + 1
        journal.seen_at = time.monotonic()
        orphans = [(journal, operation, reply) for operation, reply in answer_all(commit)]
        if self._activity is not None:
            _report(commit, self._activity)
        journal.notify()
        return orphans

    def _again(self, commit: PendingCommit, error: LakelogError) -> None:
        """Decide again after reading the journal, because the state has events that may not have been written."""
        journal = commit.journal
        journal.state = None
        if isinstance(error, OutcomeUnknown) and commit.step is not None:
            for pending, reply in zip(commit.pending, commit.step.replies, strict=True):
                pending.lost(reply)
        kept = []
        for pending in commit.pending:
            pending.tries, pending.reads = pending.tries + 1, 0
            if pending.tries < _TRIES:
                kept.append(pending)
            else:
                pending.refuse(error)
        journal.pending.extendleft(reversed(kept))
        if kept:
            tries = min(max(pending.tries for pending in kept), 5)
            journal.not_before = time.monotonic() + _PAUSE_SECONDS * 2**tries * self._random.random()

    async def check(self, cell: int, commits: Sequence[PendingCommit]) -> Orphans:
        """Answer commits with nothing to write if the journal has not changed; else decide again."""
        versions = [(commit.journal.version, commit.journal.nonce) for commit in commits]
        failed = await self._loader.load(cell, [commit.journal for commit in commits])
        if any(map(_promises, commits)):
            # The row that the reply is based on may have become visible before the standby had it.
            await self._cells[cell].timelines.await_standby()
        for commit, version in zip(commits, versions, strict=True):
            if commit.journal in failed:
                fail(commit, failed[commit.journal], self._clocks[cell])
            elif (commit.journal.version, commit.journal.nonce) != version or commit.journal.state is None:
                commit.journal.pending.extendleft(reversed(commit.pending))
            else:
                answer_all(commit)
        return []


def is_doubtful(commit: PendingCommit) -> bool:
    """Return whether to confirm a reply against the journal, because it writes nothing and so no commit checks it."""
    assert commit.step is not None
    stale = time.monotonic() - commit.journal.seen_at > _TRUST_SECONDS or any(
        map(PendingOperation.is_search, commit.pending)
    )
    return stale or any(not isinstance(reply, NothingAvailable) for reply in commit.step.replies)


def _promises(commit: PendingCommit) -> bool:
    """Return whether a reply says that an earlier call took effect."""
    assert commit.step is not None
    return not all(isinstance(reply, NothingAvailable | LakelogError) for reply in commit.step.replies)


def _report(commit: PendingCommit, activity: GroupActivity) -> None:
    assert commit.step is not None
    if commit.step.expired:
        activity.leases_expired(commit.journal, commit.step.expired)
    if commit.step.dead_messages:
        activity.died(commit.journal, commit.step.dead_messages)
