"""`step` decides operations that arrived together, against one version of the state of a group in a partition.

It processes answers (acks, nacks, extensions, commits, seeks) first, then expired leases, then requests for messages.
Each decision is an event that is applied immediately, so that the next decision takes it into account. If a step is not
committed, its state must be read again.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.coordinator.leasing import events
from lakelog.coordinator.leasing.acquiring import acquire
from lakelog.coordinator.leasing.answering import extend, finish_messages, return_messages
from lakelog.coordinator.leasing.applying import apply, cut_below
from lakelog.coordinator.leasing.closed_leases import DeliveryOutcome
from lakelog.coordinator.leasing.events import AnyEvent, add_range, pairs, to_ranges
from lakelog.coordinator.leasing.incidents import note_death, note_ends, note_losses
from lakelog.coordinator.leasing.operations import (
    Accepted,
    AcquireMessages,
    CommitPosition,
    DeadMessage,
    ExtendLease,
    FinishMessages,
    Operation,
    Reply,
    ReturnMessages,
    SeekPosition,
    SkipTo,
    StepContext,
    StepResult,
)
from lakelog.coordinator.leasing.state import DeliveryState, Lease
from lakelog.errors import InvalidRequest, LakelogError, OffsetOutOfRange, PositionRefused, StaleGeneration
from lakelog.model.incident import Incident, IncidentKind

REMEMBER_MS = 60_000
"""How long outcomes of closed leases are kept, for owners that repeat an answer."""
REMEMBER_BYTES = 64 * 1024
"""Maximum size of closed leases in a snapshot, enough for 2,500 leases per second in one partition."""
CLOCK_SLACK_MS = 5000
"""A decision that is written later than this is made again, because its times would differ from the request."""


def step(state: DeliveryState, operations: Sequence[Operation], context: StepContext) -> StepResult:
    """Decide all operations. The replies are in the order of the operations."""
    decision = StepInProgress(state, context)
    replies: list[Reply | LakelogError] = [Accepted()] * len(operations)
    decision.cut()
    requests = []
    for number, operation in enumerate(operations):
        if isinstance(operation, AcquireMessages):
            requests.append((number, operation))
        else:
            replies[number] = decision.answer(operation)
    decision.expire()
    # Messages that just came back may be below the log start.
    decision.cut()
    for number, operation in requests:
        replies[number] = decision.acquire(operation)
    decision.forget()
    decision.flush()
    return StepResult(
        replies=replies,
        events=decision.events,
        dead_messages=decision.dead_messages,
        incidents=decision.incidents,
        not_before_ms=decision.not_before,
        not_after_ms=decision.not_after,
        expired=decision.expired,
        accepted_values=tuple(decision.accepted_values),
    )


class StepInProgress:
    """A step in progress: the state, the context and the events so far."""

    def __init__(self, state: DeliveryState, context: StepContext) -> None:
        self.state = state
        self.context = context
        self.now = context.now_ms
        self.config = context.config
        self.events: list[AnyEvent] = []
        self._finished: dict[int, events.MessagesFinished] = {}
        self.dead_messages: list[DeadMessage] = []
        self.incidents: list[Incident] = []
        self.expired: list[str] = []
        self.accepted_values: dict[bytes, None] = {}
        self.not_before = self.now - CLOCK_SLACK_MS
        self.not_after = self.now + CLOCK_SLACK_MS

    def emit(self, event: AnyEvent) -> None:
        self.flush()
        apply(self.state, event, self.now)
        self.events.append(event)

    def finish(self, token: int, outcome: DeliveryOutcome, ranges: list[int], *, filtered: bool = False) -> None:
        """Emit a finish event, and merge the finish events of one lease into one."""
        event = events.MessagesFinished(token, outcome, ranges, filtered)
        if self.state.histories:
            kind = IncidentKind.ACKED if outcome is DeliveryOutcome.ACKED else IncidentKind.DISCARDED
            note_ends(self, self.state.leases[token], kind, ranges)
        apply(self.state, event, self.now)
        last = self._finished.pop(token, event)
        if (last.verb, last.filtered) != (outcome, filtered):
            self.flush()
            self.events.append(last)
        elif last is not event:
            for first, end in pairs(ranges):
                add_range(last.ranges, first, end)
            event = last
        # Moved to the end, so that replaying the journal closes leases in the same order.
        self._finished[token] = event

    def flush(self) -> None:
        if self._finished:
            self.events += self._finished.values()
            self._finished.clear()

    def since(self, time: int) -> None:
        """Make the decision valid only from this time on."""
        self.not_before = max(self.not_before, time)

    def before(self, time: int) -> None:
        """Make the decision valid only before this time."""
        self.not_after = min(self.not_after, time - 1)

    # Answers ----------------------------------------------------------------------------------------------------------

    def answer(
        self, operation: FinishMessages | ReturnMessages | ExtendLease | SeekPosition | SkipTo | CommitPosition
    ) -> Reply | LakelogError:
        """Return the reply to one operation, or why it is refused. A refused operation changes nothing."""
        try:
            if isinstance(operation, SeekPosition):
                return self._seek(operation)
            if isinstance(operation, SkipTo):
                return self._skip_to(operation)
            self._check_generation(operation.generation)
            match operation:
                case FinishMessages(ranges=[]) | ReturnMessages(ranges=[]):
                    raise InvalidRequest("The request names no messages. Give at least one offset.")
                case FinishMessages():
                    done = finish_messages(self, operation)
                case ReturnMessages():
                    done = return_messages(self, operation)
                case ExtendLease():
                    done = extend(self, operation)
                case CommitPosition():
                    done = self._commit(operation)
            self._fence(operation.generation)
            return done
        except LakelogError as refusal:
            return refusal

    def _check_generation(self, generation: int | None) -> None:
        if generation is not None and generation < self.state.generation:
            raise StaleGeneration(generation=self.state.generation)

    def _fence(self, generation: int | None) -> None:
        """Raise the generation after an accepted call. A refused call changes nothing."""
        if generation is not None and generation > self.state.generation:
            self.emit(events.GenerationFenced(generation))

    def _seek(self, operation: SeekPosition) -> Accepted:
        if operation.epoch > self.state.epoch:
            self.emit(events.PositionReset(operation.epoch, operation.offset))
        return Accepted()

    def _skip_to(self, operation: SkipTo) -> Accepted:
        state = self.state
        if operation.epoch != state.epoch:
            raise PositionRefused(
                f"A concurrent seek moved the group to offset {state.frontier}, so nothing was skipped. "
                "Check the position of the group, then retry.",
                epoch=state.epoch,
                offset=state.frontier,
            )
        before = state.counts.cut
        if state.frontier < operation.offset or cut_below(state, operation.offset):
            self.emit(events.MessagesCut(operation.offset))
        return Accepted(cut=state.counts.cut - before)

    def _commit(self, operation: CommitPosition) -> Accepted:
        state = self.state
        if operation.epoch is not None and operation.epoch != state.epoch:
            raise PositionRefused(
                f"A seek moved the group (position epoch {state.epoch}, not {operation.epoch}). Continue from "
                f"offset {state.frontier}.",
                epoch=state.epoch,
                offset=state.frontier,
            )
        if operation.offset < state.frontier:
            raise PositionRefused(
                f"The group is already at offset {state.frontier}. Use a seek to move it back to {operation.offset}.",
                offset=state.frontier,
            )
        if operation.offset > self.context.high_watermark:
            raise OffsetOutOfRange(
                f"The log ends at offset {self.context.high_watermark}, before {operation.offset}.",
                offset=operation.offset,
                high_watermark=self.context.high_watermark,
            )
        if operation.offset > state.frontier:
            self.emit(events.PositionCommitted(operation.offset))
        return Accepted()

    # Time -------------------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        log_start, state = self.context.log_start, self.state
        if log_start <= state._cut_checked:
            return
        if state.frontier < log_start or cut_below(state, log_start):
            self.emit(events.MessagesCut(log_start))
        state._cut_checked = log_start

    def expire(self) -> None:
        """End expired leases. Their messages become suspects, or failures if the lease was alone."""
        for lease in self.state.expired_leases(self.now):
            self.since(lease.until_ms)
            self.expired.append(lease.owner)
            fronted: set[int] = set()
            waits: list[int] = []
            back: list[int] = []
            dying: list[tuple[int, int]] = []
            for offset, key in lease.open.items():
                if key and key in fronted:
                    back.append(offset)
                    continue
                fronted.add(key)
                failures = self.state.failures(offset) + lease.alone
                due = self.now
                if lease.alone:
                    if failures > self.config.retries.max:
                        dying.append((offset, failures))
                    else:
                        due += self.config.retries.delay_ms(failures, self.context.chance)
                waits += (offset, due, int(lease.alone), 1)
            note_losses(self, lease, waits, {offset for offset, _ in dying}, back)
            self.emit(events.MessagesReturned(lease.token, DeliveryOutcome.EXPIRED, waits, back))
            for offset, failures in dying:
                reason = f"Its owner '{lease.owner}' was lost while it held no other message."
                self.end_message(0, lease, offset, failures, reason)

    def forget(self) -> None:
        """Drop old closed leases, but never in a separate commit."""
        if self.events or self._finished:
            details, blocks = self.state.closed.old(self.now - REMEMBER_MS, REMEMBER_BYTES)
            if details or blocks:
                self.emit(events.ClosedLeasesTrimmed(to_ranges(sorted(details)), sorted(blocks)))

    def end_message(
        self, token: int, lease: Lease, offset: int, failures: int, reason: str, traceback: str | None = None
    ) -> None:
        dead = DeadMessage(
            offset=offset,
            epoch=self.state.epoch,
            deliveries=self.state.deliveries(offset),
            failures=failures,
            reason=reason,
            owner=lease.owner,
            traceback=traceback,
        )
        note_death(self, lease, dead)
        if self.config.dead_letter:
            self.dead_messages.append(dead)
        self.emit(events.MessageDied(token, offset, not self.config.dead_letter))

    # Requests for messages --------------------------------------------------------------------------------------------

    def acquire(self, operation: AcquireMessages) -> Reply | LakelogError:
        try:
            self._check_generation(operation.generation)
            reply = acquire(self, operation)
            self._fence(operation.generation)
            return reply
        except LakelogError as refusal:
            return refusal
