"""The decision queue of one cell: operations on its journals are decided together and written in shared commits.

Reads occupy no commit slot: separate tasks load journals, read the log and fetch the bytes of dead letters. Operations
that need no read are decided as soon as a commit slot is free, so that an ack does not wait for an acquire whose
messages come from the object store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from lakelog.coordinator.leasing import operations
from lakelog.engine.clock import Clock
from lakelog.engine.coalescing import CoalescingPump
from lakelog.engine.fairness import FairQueue
from lakelog.engine.leasing.cell_health import CellHealth
from lakelog.engine.leasing.dead_letter_builder import DeadLetterBuilder
from lakelog.engine.leasing.decider import Decider
from lakelog.engine.leasing.journal import Journal, PendingCommit, PendingOperation, answer_all, fail, take_pending
from lakelog.engine.leasing.journal_writer import JournalWriter, Orphans, is_doubtful
from lakelog.engine.leasing.loader import Loader
from lakelog.engine.leasing.partition_stop import as_error
from lakelog.errors import LakelogError

COMMITS_IN_FLIGHT = 2
LOADS_IN_FLIGHT = 2
MAX_JOURNALS_PER_COMMIT = 128

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPipeline:
    """The steps of a decision, from loading to writing, which the queues of all cells share."""

    loader: Loader
    decider: Decider
    letters: DeadLetterBuilder
    writer: JournalWriter
    cell_health: CellHealth


class DecisionQueue:
    """The queue of one cell. A journal is busy while its state is loaded or a decision about it is written."""

    def __init__(self, cell: int, clock: Clock, pipeline: DecisionPipeline) -> None:
        self._cell = cell
        self._clock = clock
        self._pipeline = pipeline
        self._ready: FairQueue[Journal] = FairQueue()
        self._unloaded: dict[Journal, None] = {}
        self._with_dead_letters: list[PendingCommit] = []
        """Decided commits whose dead letters were read. They join the next commit."""
        self._commits = CoalescingPump(self._next_commit, COMMITS_IN_FLIGHT)
        self._loads = CoalescingPump(self._next_load, LOADS_IN_FLIGHT)
        self.in_flight: dict[PendingCommit, None] = {}
        """Commits that are decided and not answered yet."""
        self._others: set[asyncio.Task[None]] = set()
        """Running reads of the log and of dead letters, and releases of leases."""

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """All running tasks."""
        return self._commits.tasks | self._loads.tasks | self._others

    def submit(self, journal: Journal, operation: operations.Operation) -> asyncio.Future[operations.Reply]:
        """Queue the operation. If the future is cancelled before the decision, the operation is dropped."""
        done: asyncio.Future[operations.Reply] = asyncio.get_running_loop().create_future()
        journal.pending.append(PendingOperation(operation, done))
        if not journal.busy:
            self._ready.add(journal.group.scope.environment_id, journal)
            self._commits.wake()
        return done

    async def load(self, journals: Sequence[Journal]) -> None:
        """Read journals that are not busy. Refuse the operations on journals that could not be read."""
        for journal in journals:
            journal.busy = True
        failed: Mapping[Journal, LakelogError] = {}
        try:
            with self._pipeline.cell_health.awaiting(self._cell):
                failed = await self._pipeline.loader.load(self._cell, journals)
        except Exception as error:
            failed = {each: as_error(error) for each in journals if each.state is None}
            raise
        finally:
            for journal in journals:
                if journal in failed:
                    fail(PendingCommit(journal, take_pending(journal)), failed[journal], self._clock)
                self._free(journal)

    def release(self, journal: Journal, owner: str, granted: operations.Granted) -> None:
        """Release a lease whose caller is gone."""
        ranges = [(offset, offset + 1) for offset in granted.offsets]
        back = operations.ReturnMessages(
            owner=owner, token=granted.token, ranges=ranges, kind=operations.ReturnKind.RELEASE, orphaned=True
        )
        self._start(self._quietly(journal, back))

    async def _quietly(self, journal: Journal, operation: operations.Operation) -> None:
        try:
            await self.submit(journal, operation)
        except LakelogError as error:
            _log.debug("A lease could not be released and will expire: %s", error)

    # The pump ---------------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    def _wake(self, journal: Journal) -> None:
        if journal.pending and not journal.busy:
            self._ready.add(journal.group.scope.environment_id, journal)
            self._commits.wake()

    def _free(self, journal: Journal) -> None:
        pause = journal.not_before - time.monotonic()
        if pause > 0:
            asyncio.get_running_loop().call_later(pause, self._free, journal)
            return
        journal.busy = False
        self._wake(journal)

    def _next_load(self) -> Coroutine[object, object, None] | None:
        chosen = list(islice(self._unloaded, MAX_JOURNALS_PER_COMMIT))
        for journal in chosen:
            del self._unloaded[journal]
        return self._load(chosen) if chosen else None

    def _next_commit(self) -> Coroutine[object, object, None] | None:
        """Decide the ready journals, as many as fit into one commit. Start reads for journals that need them first."""
        commits, self._with_dead_letters = (
            self._with_dead_letters[:MAX_JOURNALS_PER_COMMIT],
            self._with_dead_letters[MAX_JOURNALS_PER_COMMIT:],
        )
        unread: dict[tuple[int, int], dict[Journal, int]] = {}
        while self._ready and len(commits) < MAX_JOURNALS_PER_COMMIT:
            journal = self._ready.pop()
            if journal.busy:
                # It is ready again when it is free.
                continue
            if journal.state is None:
                self._unloaded[journal] = None
                self._loads.wake()
                continue
            if self._await_log(journal):
                place = (journal.group.group_id, journal.topic.incarnation)
                unread.setdefault(place, {})[journal] = journal.frontier
            if commit := self._decided(journal):
                commits.append(commit)
        for frontiers in unread.values():
            self._start(self._read_log(frontiers))
        return self._commit(commits) if commits else None

    def _await_log(self, journal: Journal) -> bool:
        """Set operations aside that need the log. Return whether the caller must start to read it."""
        is_reading = bool(journal.awaiting_log)
        for pending in take_pending(journal):
            try:
                waits = self._pipeline.loader.must_read(journal, pending)
                (journal.awaiting_log if waits else journal.pending).append(pending)
            except Exception as error:
                pending.refuse(as_error(error))
        return not is_reading and bool(journal.awaiting_log)

    def _decided(self, journal: Journal) -> PendingCommit | None:
        """Return a commit to write or check. Answer a commit that needs neither."""
        commit = PendingCommit(journal, take_pending(journal))
        if not commit.pending:
            return None
        try:
            self._pipeline.decider.decide(commit)
        except Exception as error:
            journal.state = None
            fail(commit, as_error(error), self._clock)
        if commit.step is None or not commit.pending:
            return None
        if commit.entry is None and not is_doubtful(commit):
            answer_all(commit)
            return None
        journal.busy = True
        self.in_flight[commit] = None
        if commit.entry is not None and commit.step.dead_messages:
            self._start(self._write_letters(commit))
            return None
        return commit

    # Reading ----------------------------------------------------------------------------------------------------------

    async def _load(self, chosen: Sequence[Journal]) -> None:
        try:
            await self.load([each for each in chosen if not each.busy and each.state is None])
        except Exception as error:
            _log.debug("Journals could not be read: %s", error)
        finally:
            for journal in chosen:
                self._wake(journal)

    async def _read_log(self, frontiers: Mapping[Journal, int]) -> None:
        """Read the log for journals of one group and topic, then queue their operations again."""
        with self._pipeline.cell_health.awaiting(self._cell):
            failed = await self._pipeline.loader.fill(frontiers)
        # The cell does not wait for it: a slow filter must not count as an unresponsive cell.
        failed |= await self._pipeline.loader.evaluate([journal for journal in frontiers if journal not in failed])
        for journal in frontiers:
            waiting, journal.awaiting_log = journal.awaiting_log, []
            if journal in failed and not _has_moved(journal, frontiers[journal]):
                fail(PendingCommit(journal, waiting), failed[journal], self._clock)
                if not journal.busy:
                    # Load it again: another server may have moved the group past what cannot be read.
                    journal.state = None
                continue
            for pending in waiting:
                pending.reads += 1
            journal.pending.extendleft(reversed(waiting))
            self._wake(journal)

    async def _write_letters(self, commit: PendingCommit) -> None:
        assert commit.entry is not None and commit.step is not None
        journal = commit.journal
        try:
            with self._pipeline.cell_health.awaiting(self._cell):
                letters = await self._pipeline.letters.write(
                    journal.topic, journal.partition, commit.step.dead_messages
                )
            commit.entry = replace(commit.entry, dead_letters=letters)
            self._with_dead_letters.append(commit)
            self._commits.wake()
        except Exception as error:
            fail(commit, as_error(error), self._clock)
            self._end([commit])

    # Writing ----------------------------------------------------------------------------------------------------------

    async def _commit(self, commits: Sequence[PendingCommit]) -> None:
        for commit in commits:
            if commit.journal.state is None:
                # The journal was dropped since: decide again.
                commit.journal.pending.extendleft(reversed(commit.pending))
                self._end([commit])
        commits = [commit for commit in commits if commit in self.in_flight]
        writing = [commit for commit in commits if commit.entry is not None]
        checking = [commit for commit in commits if commit.entry is None]
        # Concurrently: neither waits for the other.
        await asyncio.gather(
            *(
                self._answer(work, share)
                for work, share in ((self._pipeline.writer.write, writing), (self._pipeline.writer.check, checking))
                if share
            )
        )

    async def _answer(
        self,
        work: Callable[[int, Sequence[PendingCommit]], Awaitable[Orphans]],
        commits: Sequence[PendingCommit],
    ) -> None:
        try:
            with self._pipeline.cell_health.awaiting(self._cell):
                orphans = await work(self._cell, commits)
            for journal, operation, reply in orphans:
                if isinstance(operation, operations.AcquireMessages) and isinstance(reply, operations.Granted):
                    self.release(journal, operation.owner, reply)
        except Exception as error:
            for commit in commits:
                fail(commit, as_error(error), self._clock)
        finally:
            self._end(commits)

    def _end(self, commits: Sequence[PendingCommit]) -> None:
        for commit in commits:
            self.in_flight.pop(commit, None)
            self._free(commit.journal)


def _has_moved(journal: Journal, frontier: int) -> bool:
    """Return whether a skip or a seek moved the group while the log was read from the frontier on."""
    return journal.state is not None and journal.frontier != frontier
