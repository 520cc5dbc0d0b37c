"""Matches waiting consumers with the partitions of a topic, in rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from lakelog.coordinator.leasing.operations import AcquireMessages, Granted, Reply
from lakelog.engine.changes import Changes
from lakelog.engine.clock import Clock
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.engine.leasing.journal import Journal
from lakelog.engine.leasing.journals import Journals
from lakelog.engine.waiters import Waiters
from lakelog.errors import LakelogError, OutcomeUnknown
from lakelog.storage.store import Catalog, PartitionStore

MAX_PARTITIONS_PER_CONSUMER = 128

Grants = list[tuple[Journal, Granted]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingContext:
    """The services that all dispatchers of an engine share."""

    journals: Journals
    batch_cache: BatchCache
    changes: Changes
    clocks: Mapping[int, Clock]
    catalog: Catalog
    cells: Mapping[int, PartitionStore]

    @property
    def waiters(self) -> Waiters:
        """The consumers, readers and dispatchers of this process that wait."""
        return self.changes.waiters


@dataclass(slots=True, eq=False)
class WaitingConsumer:
    """A consumer that waits for messages. `own` are its member's partitions; if `strict`, it takes from no others."""

    take: AcquireMessages
    done: asyncio.Future[Grants]
    own: frozenset[int] = frozenset()
    strict: bool = False
    is_repeat: bool = False
    """True if the caller says that it sent the call before."""
    answered: frozenset[int] = frozenset()
    """Partitions of the answers in the call. The answers are decided with the call, and may free messages there."""
    is_attempting: bool = False
    is_last: bool = False
    """True if the consumer's time has passed: it is served now or not at all."""
    is_dismissed: bool = False
    has_waited: bool = False
    """True if nothing was available when the consumer arrived."""
    empty_at: dict[int, int] = field(default_factory=dict)
    """Partitions that had nothing for this owner, with their number of changes at that time."""
    unsearched: dict[int, None] = field(default_factory=dict)
    """The partitions that may have the lease of a repeated call. They are tried first, for that lease only."""


@dataclass(slots=True, eq=False)
class PartitionView:
    """A dispatcher's view of one partition."""

    journal: Journal
    batch_cache: BatchCache
    clock: Clock
    changes: int = 0
    """The number of changes in the partition so far."""
    wanted: int = 0
    """The number of messages that consumers try to get now."""
    ends: tuple[int, int] = (0, 0)
    """Log start and high watermark when the dispatcher last polled."""

    def free_count(self) -> int:
        """Return how many messages may be available beyond those that consumers try to get now."""
        journal, state = self.journal, self.journal.state
        if state is None:
            return 1 - self.wanted
        # No more than the group's window here: a consumer that asks for more gets the rest from other partitions.
        free = max(0, journal.group.settings.window - state.open_count - len(state.waiting))
        ready = self.backlog() + state.skipped_count
        return max(1, min(free, ready) + len(state.waiting)) - self.wanted

    def backlog(self) -> int:
        """Return how many messages are known from the frontier on; at least one if there may be any."""
        return self.batch_cache.backlog(self.journal.pid, self.journal.frontier)

    def may_be_freed(self) -> bool:
        """Return whether an answer may make messages available, because a key is blocked or the window is full."""
        state = self.journal.state
        return state is not None and bool(state.skipped_count or self.backlog())

    def due_in_ms(self) -> int | None:
        return self.journal.due_in_ms(self.clock)

    def is_suspect_due(self) -> bool:
        return self.journal.is_suspect_due(self.clock)

    def has_lease_of(self, take: AcquireMessages) -> bool:
        """Return whether the same request has a lease in this partition, according to the cached state."""
        state = self.journal.state
        if state is None or not state.leases or not take.request:
            return False
        return any(lease.request == take.request for lease in state.held_by(take.owner))


def repeated_at(view: PartitionView, waiting: Iterable[WaitingConsumer]) -> list[WaitingConsumer]:
    """Return the waiting consumers that already have a lease in this partition from an earlier call."""
    state = view.journal.state
    owners = {lease.owner for lease in state.leases.values()} if state is not None else set()
    return [consumer for consumer in waiting if consumer.take.owner in owners and view.has_lease_of(consumer.take)]


def held_elsewhere(views: Sequence[PartitionView], owner: str, partition: int) -> tuple[int, bool]:
    """Return how many messages the owner holds in other partitions, and whether one of them is a suspect."""
    count, suspect = 0, False
    for number, view in enumerate(views):
        state = view.journal.state
        if number != partition and state is not None and state.leases:
            for lease in state.held_by(owner):
                count += len(lease.open)
                suspect = suspect or lease.suspect
    return count, suspect


def may_get_suspect(views: Sequence[PartitionView], consumer: WaitingConsumer, partition: int) -> bool:
    """Return whether the attempt may get a suspect. Its owner gets nothing else, so no other partition is tried."""
    view, owner = views[partition], consumer.take.owner
    state = view.journal.state
    if state is None or consumer.take.isolates or not view.is_suspect_due():
        return False
    return not state.held_by(owner) and not held_elsewhere(views, owner, partition)[0]


def not_loaded(views: Iterable[PartitionView]) -> list[Journal]:
    """Return the journals that are neither loaded nor busy, as many as one consumer may try."""
    journals = (view.journal for view in views)
    return list(
        islice((each for each in journals if each.state is None and not each.busy), MAX_PARTITIONS_PER_CONSUMER)
    )


@dataclass(slots=True, eq=False)
class LeaseAttempt:
    """An attempt to lease messages of a partition to a consumer. A share of 0 only looks for the lease of a repeat."""

    view: PartitionView
    partition: int
    share: int
    changes: int
    alone: bool
    reply: asyncio.Future[Reply]


def error_of(attempts: Sequence[LeaseAttempt], refusal: BaseException | None) -> BaseException | None:
    """Return the error for the consumer, if any. A stopped partition is not an error while others continue."""
    for each in attempts:
        failed, stop = each.reply.exception(), each.view.journal.stop
        is_stopped = stop is not None and failed is stop.error
        if failed is not None and not is_stopped and not isinstance(refusal, OutcomeUnknown):
            refusal = failed
    if any(each.share == 0 and each.reply.exception() is None for each in attempts):
        # An unresponsive cell must not keep a repeat from the leases in other cells.
        return refusal if isinstance(refusal, OutcomeUnknown) else None
    return refusal


def stop_of_all_partitions(views: Sequence[PartitionView], consumer: WaitingConsumer) -> LakelogError | None:
    """Return an error if all partitions that the consumer may take from are stopped, because waiting would not help."""
    stops = [view.journal.stop for view in views if not consumer.strict or view.journal.partition in consumer.own]
    return stops[0].error if stops and stops[0] and all(stops) else None


class Matcher:
    """One round of matching: the shares of each consumer so far, and the messages left in each partition."""

    def __init__(
        self, views: Sequence[PartitionView], ready: Sequence[int], members: Mapping[int, WaitingConsumer]
    ) -> None:
        """`ready` are the partitions to try, in order; `members` has the consumer of each partition's own member."""
        self._views = views
        self._ready = ready
        self._members = members
        self._left: dict[int, int] = {}
        self._wants: dict[WaitingConsumer, int] = {}
        self._chosen: dict[WaitingConsumer, dict[int, int]] = {}

    def match(self, waiting: Sequence[WaitingConsumer]) -> dict[WaitingConsumer, dict[int, int]]:
        """Return which partitions each consumer tries, and for how many messages."""
        if not self._ready or not waiting:
            return {}
        busy = self._match_own(set(waiting)) if self._members else set()
        # A member helps out elsewhere only while there is nothing in its own partitions.
        free = [
            consumer
            for consumer in waiting
            if consumer not in busy and not consumer.strict and self._wants.get(consumer, 1) > 0
        ]
        for number, consumer in enumerate(free):
            # Each consumer begins at another partition, so that all partitions work at once.
            at = number % len(self._ready)
            for partition in (*self._ready[at:], *self._ready[:at]):
                if not self._assign(consumer, partition):
                    break
        return self._chosen

    def _match_own(self, waiting: set[WaitingConsumer]) -> set[WaitingConsumer]:
        """Assign ready partitions to waiting consumers of their own members. Return the consumers that got one."""
        busy: set[WaitingConsumer] = set()
        for partition in self._ready:
            consumer = self._members.get(partition)
            if consumer is not None and consumer in waiting:
                self._assign(consumer, partition)
                busy.add(consumer)
        return busy

    def _assign(self, consumer: WaitingConsumer, partition: int) -> bool:
        """Let the consumer try the partition if messages are left. Return whether it may try more partitions."""
        view = self._views[partition]
        wants = self._wants.get(consumer)
        if wants is None:
            wants = self._wants[consumer] = consumer.take.max_messages
        left = self._left.get(partition)
        if left is None:
            left = self._left[partition] = view.free_count()
        if wants <= 0:
            return False
        # A partition that had nothing for this owner is tried again only after a change.
        if left <= 0 or consumer.empty_at.get(partition) == view.changes:
            return True
        shares = self._chosen.get(consumer)
        apart = may_get_suspect(self._views, consumer, partition)
        if apart and shares:
            return True
        if shares is None:
            shares = self._chosen[consumer] = {}
        shares[partition] = share = 1 if apart else min(wants, max(left, wants // len(self._ready), 1))
        self._left[partition] = left - share
        full = apart or len(shares) == MAX_PARTITIONS_PER_CONSUMER
        self._wants[consumer] = 0 if full else wants - share
        return self._wants[consumer] > 0
