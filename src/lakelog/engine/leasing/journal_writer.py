"""Writes what was decided for ledgers: one commit for all of a cell, and one outcome for each.

Every operation can be decided again: after a conflict, or a commit of unknown outcome, a ledger has no state and its
operations are back in line.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from lakelog import failpoints
from lakelog.coordinator.leasing import NothingAvailable, Operation, Reply
from lakelog.engine.clock import Clock
from lakelog.engine.groups.activity import GroupActivity
from lakelog.engine.leasing.journal import Asked, Ledger, Turn, fail, reply_to
from lakelog.engine.leasing.loader import Loader
from lakelog.engine.leasing.partition_stop import as_error
from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable
from lakelog.storage.groups import CommitResult, CommitStatus
from lakelog.storage.store import PartitionStore

_TRIES = 40
_PAUSE_SECONDS = 0.002
"""After a conflict, on average and doubled up to sixteen times: two servers that decide in step would never agree."""
_TRUST_SECONDS = 1.0
"""So long after the journal was last seen, `NothingAvailable` is answered from the cache."""

Orphans = list[tuple[Ledger, Operation, Reply]]
"""What was decided for callers that gave up."""


class JournalWriter:
    """Of all cells; one per engine."""

    def __init__(
        self,
        cells: Mapping[int, PartitionStore],
        clocks: Mapping[int, Clock],
        loader: Loader,
        heard: Callable[[int], None],
        activity: GroupActivity | None,
    ) -> None:
        """`heard` is called with each cell that responds. `activity` receives what was written."""
        self._cells = cells
        self._clocks = clocks
        self._loader = loader
        self._heard = heard
        self._random = random.Random(secrets.randbits(64))
        self._activity = activity

    async def write(self, cell: int, turns: Sequence[Turn]) -> Orphans:
        """Commits the entries of the turns, and answers those that were written."""
        entries = [turn.entry for turn in turns if turn.entry is not None]
        try:
            if failpoints.armed:
                failpoints.hit("leases.before_commit")
            answers = await self._cells[cell].groups.journals_commit(entries)
            self._heard(cell)
            if failpoints.armed:
                failpoints.hit("leases.after_commit")
        except (OutcomeUnknown, Unavailable) as error:
            for turn in turns:
                self._again(turn, error)
            return []
        except Exception as error:
            if len(turns) == 1:
                fail(turns[0], as_error(error), self._clocks[cell])
                return []
            # Perhaps one of them cannot be written. If any was, its version does not follow: it is decided again.
            return [orphan for turn in turns for orphan in await self.write(cell, [turn])]
        except BaseException:
            for turn in turns:
                turn.ledger.state = None
            raise
        orphans: Orphans = []
        for turn, answer in zip(turns, answers, strict=True):
            try:
                orphans += self._written(self._clocks[cell], turn, answer)
            except Exception as error:
                fail(turn, OutcomeUnknown.after(as_error(error)), self._clocks[cell])
        return orphans

    def _written(self, clock: Clock, turn: Turn, answer: CommitResult) -> Orphans:
        if answer.status is CommitStatus.TIME:
            clock.corrected(answer.clock_ms)
        else:
            clock.heard(answer.clock_ms)
        if answer.status is not CommitStatus.OK:
            self._again(turn, Unavailable("Too many servers change the group's progress at once; try again."))
            return []
        ledger, entry = turn.ledger, turn.entry
        assert entry is not None
        ledger.version = entry.version
        ledger.since_snapshot = 0 if entry.snapshot else ledger.since_snapshot + 1
        ledger.seen_at = time.monotonic()
        orphans = [(ledger, operation, reply) for operation, reply in reply_to(turn)]
        if self._activity is not None:
            _report(turn, self._activity)
        if ledger.changed:
            ledger.changed(ledger)
        return orphans

    def _again(self, turn: Turn, error: LakelogError) -> None:
        """Decides again after reading the journal: the state has events that were perhaps not written."""
        ledger = turn.ledger
        ledger.state = None
        if isinstance(error, OutcomeUnknown) and turn.step is not None:
            for asked, reply in zip(turn.asked, turn.step.replies, strict=True):
                asked.lost(reply)
        kept = []
        for asked in turn.asked:
            asked.tries, asked.reads = asked.tries + 1, 0
            if asked.tries < _TRIES:
                kept.append(asked)
            else:
                asked.refuse(error)
        ledger.asked.extendleft(reversed(kept))
        if kept:
            tries = min(max(asked.tries for asked in kept), 5)
            ledger.not_before = time.monotonic() + _PAUSE_SECONDS * 2**tries * self._random.random()

    async def check(self, cell: int, turns: Sequence[Turn]) -> Orphans:
        """Answers turns with nothing to write, if the journal has not moved on; else they are decided again."""
        versions = [turn.ledger.version for turn in turns]
        failed = await self._loader.load(cell, [turn.ledger for turn in turns])
        for turn, version in zip(turns, versions, strict=True):
            if turn.ledger in failed:
                fail(turn, failed[turn.ledger], self._clocks[cell])
            elif turn.ledger.version != version or turn.ledger.state is None:
                turn.ledger.asked.extendleft(reversed(turn.asked))
            else:
                reply_to(turn)
        return []


def is_doubtful(turn: Turn) -> bool:
    """An answer that writes nothing is never checked by a commit, so it is confirmed against the journal first."""
    assert turn.step is not None
    stale = time.monotonic() - turn.ledger.seen_at > _TRUST_SECONDS or any(map(Asked.is_search, turn.asked))
    return stale or any(not isinstance(reply, NothingAvailable) for reply in turn.step.replies)


def _report(turn: Turn, activity: GroupActivity) -> None:
    assert turn.step is not None
    if turn.step.expired:
        activity.leases_expired(turn.ledger, turn.step.expired)
    if turn.step.dead_messages:
        activity.died(turn.ledger, turn.step.dead_messages)
