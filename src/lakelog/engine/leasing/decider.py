"""Decides the pending operations of one journal from its state, the part of the log that was read, and the time.

The module writes nothing. A decision takes effect only when it is committed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lakelog.coordinator.leasing.codec import encode_events, encode_state
from lakelog.coordinator.leasing.operations import (
    AcquireMessages,
    Candidates,
    Operation,
    SeekPosition,
    StepContext,
    StepResult,
)
from lakelog.coordinator.leasing.state import DeliveryState
from lakelog.coordinator.leasing.step import step
from lakelog.coordinator.leasing.summary import summarize
from lakelog.engine.clock import Clock
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.engine.leasing.incident_sampler import IncidentSampler
from lakelog.engine.leasing.journal import Journal, PendingCommit
from lakelog.errors import OutcomeUnknown
from lakelog.storage.groups import JournalEntry

SNAPSHOT_EVERY = 256
_LOOK_FURTHER = 100


class Decider:
    """Computes the step and the journal entry of each commit."""

    def __init__(
        self, batch_cache: BatchCache, clocks: Mapping[int, Clock], dice: random.Random, nonces: Iterator[int]
    ) -> None:
        self._batch_cache = batch_cache
        self._clocks = clocks
        self._random = dice
        self._nonces = nonces
        self._sampler = IncidentSampler()

    def decide(self, commit: PendingCommit) -> None:
        journal = commit.journal
        state = journal.state
        assert state is not None
        now_ms = self._clocks[journal.cell].now_ms()
        _refuse_ended(commit, now_ms)
        if not commit.pending:
            return
        operations = [each.operation for each in commit.pending]
        if (target := journal.pending_seek) is not None:
            operations.insert(0, SeekPosition(epoch=journal.group_topic.epoch, offset=target))
        context = self._context(journal, state, operations, now_ms)
        decided = step(state, operations, context)
        if len(operations) > len(commit.pending):
            decided = replace(decided, replies=decided.replies[1:])
        commit.step = decided
        if decided.events:
            commit.entry = self._entry(journal, state, decided, now_ms)

    def _context(
        self, journal: Journal, state: DeliveryState, operations: Sequence[Operation], now_ms: int
    ) -> StepContext:
        row = self._batch_cache.row(journal.pid)
        wants = [each.max_messages for each in operations if isinstance(each, AcquireMessages) and not each.is_search]
        if wants:
            frontier = max(state.frontier, row.log_start)
            # More than is wanted, because some will be skipped. If that is not enough, the next attempt continues.
            look = 2 * sum(wants) + _LOOK_FURTHER
            candidates = self._batch_cache.candidates(row, frontier, journal.group.name, journal.filter(), look)
        else:
            candidates = Candidates(start=state.frontier, keys=())
        return StepContext(
            now_ms=now_ms,
            chance=self._random.random(),
            config=journal.config(),
            candidates=candidates,
            log_start=row.log_start,
            high_watermark=row.high_watermark,
        )

    def _entry(self, journal: Journal, state: DeliveryState, decided: StepResult, now_ms: int) -> JournalEntry:
        snapshot = journal.version == 0 or journal.since_snapshot >= SNAPSHOT_EVERY
        return JournalEntry(
            group_id=journal.group.group_id,
            pid=journal.pid,
            nonce=next(self._nonces),
            after_nonce=journal.nonce,
            version=journal.version + 1,
            snapshot=snapshot,
            body=encode_state(state) if snapshot else encode_events(decided.events, now_ms, summarize(state)),
            not_before_ms=decided.not_before_ms,
            not_after_ms=decided.not_after_ms,
            incarnation=journal.topic.incarnation,
            incidents=self._sampler.prepare(journal.group.group_id, decided.incidents, now_ms),
            accepted_values=decided.accepted_values,
        )


def _refuse_ended(commit: PendingCommit, now_ms: int) -> None:
    """Refuse operations whose reply was lost and whose lease may have expired.

    A new lease would look like the first.
    """
    ended = [pending for pending in commit.pending if pending.until_ms is not None and pending.until_ms <= now_ms]
    if ended:
        for pending in ended:
            pending.refuse(OutcomeUnknown("A reply was lost, and the lease may have expired since; call again."))
        commit.pending = [pending for pending in commit.pending if pending not in ended]
