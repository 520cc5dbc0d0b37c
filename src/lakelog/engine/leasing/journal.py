"""The journal of one group in one partition: its progress as this process knows it, and the pending operations."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field, replace

from lakelog.coordinator.leasing import operations
from lakelog.coordinator.leasing.codec import decode_state, replay
from lakelog.coordinator.leasing.state import DeliveryState, begin
from lakelog.engine.clock import Clock
from lakelog.engine.leasing.partition_stop import PartitionStop, concerns_one_partition, stop_after
from lakelog.engine.waiters import Waiters
from lakelog.errors import LakelogError, OutcomeUnknown
from lakelog.model.filter import Filter, parse
from lakelog.model.group import Group, GroupSettings, GroupTopic
from lakelog.model.topic import Topic
from lakelog.reporting import log_event
from lakelog.storage.groups import JournalEntry, JournalRead

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PendingOperation:
    """One operation that waits for its decision or its commit."""

    operation: operations.Operation
    done: asyncio.Future[operations.Reply]
    tries: int = 0
    reads: int = 0
    """How often the log was read for this operation."""
    is_unknown: bool = False
    """True if the outcome of a commit with this operation is unknown."""
    until_ms: int | None = None
    """When the lease that may have been granted ends. Until then, a repeat of the request finds the lease."""

    def lost(self, reply: operations.Reply | LakelogError) -> None:
        """Record that the commit of this reply may have been written. A refusal writes nothing."""
        if not isinstance(reply, LakelogError):
            self.is_unknown = True
        if isinstance(reply, operations.Granted):
            self.until_ms = reply.until_ms

    def take_values(self, taken: frozenset[bytes]) -> None:
        """Record that runs with these values were accepted. The next decision filters messages that repeat them."""
        if isinstance(self.operation, operations.FinishMessages) and self.operation.once:
            self.operation = replace(self.operation, taken=self.operation.taken | taken)

    def is_search(self) -> bool:
        """Return whether the operation searches for a lease that an earlier call with the same request got."""
        return isinstance(self.operation, operations.AcquireMessages) and self.operation.is_search

    def refuse(self, error: LakelogError) -> None:
        """Refuse the operation. After a commit of unknown outcome, the refusal does not prove that nothing changed."""
        if not self.done.done():
            self.done.set_exception(OutcomeUnknown.after(error) if self.is_unknown else error)


@dataclass(slots=True, eq=False)
class Journal:
    """One group in one partition. `state` is None until it is read, or when it must be read again."""

    group: Group
    group_topic: GroupTopic
    topic: Topic
    partition: int
    waiters: Waiters
    version: int = 0
    nonce: int = 0
    """The nonce of the row with that version."""
    since_snapshot: int = 0
    state: DeliveryState | None = None
    seen_at: float = 0.0
    busy: bool = False
    not_before: float = 0.0
    """When to decide again after a conflict."""
    stop: PartitionStop | None = None
    """The last error that concerns only this group and partition, until messages are delivered again."""
    confirmed: tuple[int, int] | None = None
    """A timeline, and the frontier whose messages before it no failover up to that timeline lost."""
    pending: deque[PendingOperation] = field(default_factory=deque)
    drops: int = 0
    """The number of drops of this journal. Rows that were requested before a drop are ignored."""
    awaiting_log: list[PendingOperation] = field(default_factory=list)
    """Operations for which the log is being read. They are pending again afterwards."""
    _config: tuple[int, operations.LeasingConfig] | None = None
    _settings: tuple[int, GroupSettings] | None = None
    pid: int = field(init=False)
    key: tuple[int, int] = field(init=False)
    """The group id and the partition id, which identify the journal in `waiters`."""

    def __post_init__(self) -> None:
        self.pid = self.topic.pid(self.partition)
        self.key = (self.group.group_id, self.pid)

    def beginning(self) -> DeliveryState:
        """Return the state before the first decision."""
        return begin(self.group_topic.start(self.partition), last_token=token_before(self.group, self.topic))

    def config(self) -> operations.LeasingConfig:
        """Return the settings of the group in the topic, as decisions need them."""
        group = self.group
        if self._config is None or self._config[0] != group.version:
            settings = self.settings()
            self._config = (
                group.version,
                operations.LeasingConfig(
                    order=settings.order,
                    retries=settings.retries,
                    dead_letter=settings.dead_letter,
                    window=settings.window,
                    paused=group.is_paused(self.topic.name),
                ),
            )
        return self._config[1]

    def settings(self) -> GroupSettings:
        """Return the settings of the group in the topic."""
        group = self.group
        if self._settings is None or self._settings[0] != group.version:
            self._settings = (group.version, group.settings.in_topic(self.topic.name))
        return self._settings[1]

    def filter(self) -> Filter | None:
        """Return the filter of the group in the topic."""
        text = self.settings().filter
        return parse(text) if text else None

    def notify(self) -> None:
        """Wake the dispatcher of this journal, because the journal was written, read or dropped."""
        self.waiters.wake(self.key)

    @property
    def frontier(self) -> int:
        """The frontier of the state, which must have been read."""
        assert self.state is not None
        return self.state.frontier

    @property
    def pending_seek(self) -> int | None:
        """The target of a seek that was decided and not applied here yet."""
        assert self.state is not None
        return self.group_topic.target(self.partition) if self.group_topic.epoch > self.state.epoch else None

    @property
    def cell(self) -> int:
        return self.topic.cells[self.partition]

    @property
    def is_cached(self) -> bool:
        """Return whether the state is loaded, and no decision about it is being written."""
        return self.state is not None and not self.busy

    @property
    def is_stopped(self) -> bool:
        """Return whether delivery of the partition to the group is stopped now."""
        return self.stop is not None and not self.stop.is_over()

    def drop(self) -> None:
        """Forget the state of the journal, and that delivery was stopped."""
        self.state = self.stop = self.confirmed = None
        self.version = self.nonce = self.since_snapshot = 0
        self.drops += 1
        self.notify()

    def stopped(self, error: LakelogError, clock: Clock) -> None:
        """Stop delivery of the partition to the group for a while."""
        if self.stop is None:
            place = f"Group '{self.group.name}' stopped in topic '{self.topic.name}', partition {self.partition}"
            fields: dict[str, str | int] = {
                "group": self.group.name,
                "topic": self.topic.name,
                "partition": self.partition,
            }
            log_event(_log, logging.WARNING, "partition_stopped", f"{place}: {error}", **fields)
        self.stop = stop_after(error, clock.now_ms() if clock.known else 0)

    def due_in_ms(self, clock: Clock) -> int | None:
        """Return when the next lease expires or the next retry is due; None if neither is known."""
        due = self.state.next_due_ms() if self.state is not None else None
        return None if due is None else due - clock.now_ms()

    def is_suspect_due(self, clock: Clock) -> bool:
        """Return whether a suspect is due now, or will be after the next decision because its lease expired."""
        due = self.state.first_lost_ms() if self.state is not None else None
        return due is not None and due <= clock.now_ms()


def token_before(group: Group, topic: Topic) -> int:
    """Return the token before the first lease of a group in a partition: when the later of the two was created, in µs.

    A group or topic that is deleted and created again must not reuse a token, or a late answer would reach another
    lease. Tokens rise by one with each lease, which takes longer than a microsecond. So all earlier tokens are below
    the current time in microseconds, and a new group begins above them. A clock that is set back breaks this only if it
    goes back by nearly the whole life of the deleted group. Until the year 2255 tokens are below 2**53, so a float
    represents them exactly.
    """
    return round(max(group.created_at, topic.created_at).timestamp() * 1_000_000)


@dataclass(slots=True, eq=False)
class PendingCommit:
    """The part of one commit that belongs to one journal: the operations and the decision."""

    journal: Journal
    pending: list[PendingOperation]
    step: operations.StepResult | None = None
    entry: JournalEntry | None = None


def replay_rows(state: DeliveryState, read: JournalRead, since_snapshot: int = 0) -> tuple[DeliveryState, int]:
    for row in read.rows:
        if row.snapshot:
            state, since_snapshot = decode_state(row.body), 0
        else:
            replay(state, row.body)
            since_snapshot += 1
    return state, since_snapshot


def take_pending(journal: Journal) -> list[PendingOperation]:
    """Remove and return the pending operations whose callers still wait."""
    pending = [each for each in journal.pending if not each.done.done()]
    journal.pending.clear()
    return pending


def answer_all(commit: PendingCommit) -> list[tuple[operations.Operation, operations.Reply]]:
    """Answer all callers. Return the replies of those that no longer wait."""
    assert commit.step is not None
    if commit.journal.stop and any(map(_moves_on, commit.pending)):
        commit.journal.stop = None
    gone = []
    for pending, reply in zip(commit.pending, commit.step.replies, strict=True):
        if pending.done.done():
            if not isinstance(reply, LakelogError):
                gone.append((pending.operation, reply))
        elif isinstance(reply, LakelogError):
            pending.refuse(reply)
        else:
            pending.done.set_result(reply)
    return gone


def fail(commit: PendingCommit, error: LakelogError, clock: Clock) -> None:
    """Refuse the operations. An error that concerns only this group and partition stops delivery for a while."""
    commit.journal.state = None if commit.step else commit.journal.state
    if concerns_one_partition(error):
        commit.journal.stopped(error, clock)
    for pending in commit.pending:
        pending.refuse(error)
    commit.pending, commit.entry = [], None


def _moves_on(pending: PendingOperation) -> bool:
    """Return whether deciding the operation ends a stop: its messages were read or skipped."""
    return (
        isinstance(pending.operation, operations.AcquireMessages | operations.SeekPosition | operations.SkipTo)
        and not pending.is_search()
    )
