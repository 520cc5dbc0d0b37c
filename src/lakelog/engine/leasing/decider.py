"""What is decided for one ledger: by its state, what is asked of it, the log as far as it was read, and the time.

Writes nothing: what was decided holds only if it is committed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakelog.coordinator.leasing import (
    AcquireMessages,
    Candidates,
    DeliveryState,
    Operation,
    SeekPosition,
    StepContext,
    StepResult,
    encode_events,
    encode_state,
    step,
    summarize,
)
from lakelog.engine.clock import Clock
from lakelog.engine.leasing.batch_cache import Shelf
from lakelog.engine.leasing.journal import Ledger, Turn
from lakelog.errors import OutcomeUnknown
from lakelog.model.filter import parse
from lakelog.storage.groups import JournalEntry

SNAPSHOT_EVERY = 256
_LOOK_FURTHER = 100


class Decider:
    """Gives turns their steps, and the entries of the journal that say so."""

    def __init__(self, shelf: Shelf, clocks: Mapping[int, Clock], dice: random.Random) -> None:
        self._shelf = shelf
        self._clocks = clocks
        self._random = dice

    def decide(self, turn: Turn) -> None:
        ledger = turn.ledger
        state = ledger.state
        assert state is not None
        now_ms = self._clocks[ledger.cell].now_ms()
        _refuse_ended(turn, now_ms)
        if not turn.asked:
            return
        operations = [each.operation for each in turn.asked]
        reading = ledger.reading
        if reading.epoch > state.epoch and ledger.partition < len(reading.targets):
            target = reading.targets[ledger.partition]
            if target is not None:
                # A seek that was decided and did not get here yet.
                operations.insert(0, SeekPosition(epoch=reading.epoch, offset=target))
        context = self._context(ledger, state, operations, now_ms)
        decided = step(state, operations, context)
        if len(operations) > len(turn.asked):
            decided = replace(decided, replies=decided.replies[1:])
        turn.step = decided
        if decided.events:
            turn.entry = self._entry(ledger, state, decided, now_ms)

    def _context(
        self, ledger: Ledger, state: DeliveryState, operations: Sequence[Operation], now_ms: int
    ) -> StepContext:
        row = self._shelf.row(ledger.pid)
        group = ledger.group
        wants = [each.max_messages for each in operations if isinstance(each, AcquireMessages) and not each.is_search]
        if wants:
            wanted = parse(group.settings.filter) if group.settings.filter else None
            frontier = max(state.frontier, row.log_start)
            # Further than is wanted, because some will be skipped; where that is not enough, the next try goes on.
            look = 2 * sum(wants) + _LOOK_FURTHER
            candidates = self._shelf.candidates(row, frontier, group.name, wanted, look)
        else:
            candidates = Candidates(start=state.frontier, keys=())
        return StepContext(
            now_ms=now_ms,
            chance=self._random.random(),
            config=ledger.config(),
            candidates=candidates,
            log_start=row.log_start,
            high_watermark=row.high_watermark,
        )

    def _entry(self, ledger: Ledger, state: DeliveryState, decided: StepResult, now_ms: int) -> JournalEntry:
        snapshot = ledger.version == 0 or ledger.since_snapshot >= SNAPSHOT_EVERY
        return JournalEntry(
            group_id=ledger.group.group_id,
            pid=ledger.pid,
            version=ledger.version + 1,
            snapshot=snapshot,
            body=encode_state(state) if snapshot else encode_events(decided.events, now_ms, summarize(state)),
            not_before_ms=decided.not_before_ms,
            not_after_ms=decided.not_after_ms,
        )


def _refuse_ended(turn: Turn, now_ms: int) -> None:
    """Whoever may have had a lease that is over by now does not get the messages as if it were for the first time."""
    ended = [asked for asked in turn.asked if asked.until_ms is not None and asked.until_ms <= now_ms]
    if ended:
        for asked in ended:
            asked.refuse(OutcomeUnknown("An answer was lost, and what was leased is perhaps over; ask again."))
        turn.asked = [asked for asked in turn.asked if asked not in ended]
