"""Waiting consumers and their attempts to lease messages, as the dispatcher and its parts share them."""

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
from lakelog.engine.leasing.lease_holders import HeldMessages
from lakelog.engine.leasing.partition_view import PartitionView
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
    must_search: bool = False
    """True if all partitions have to be searched for the leases of a repeated call."""
    has_searched: bool = False
    """True if the journals of all partitions were read for the search."""
    unsearched: dict[int, None] = field(default_factory=dict)
    """The partitions that may have the lease of a repeated call. They are tried first, for that lease only."""


def repeated_at(view: PartitionView, waiting: Iterable[WaitingConsumer]) -> list[WaitingConsumer]:
    """Return the waiting consumers that already have a lease in this partition from an earlier call."""
    state = view.journal.state
    owners = {lease.owner for lease in state.leases.values()} if state is not None else set()
    return [consumer for consumer in waiting if consumer.take.owner in owners and view.has_lease_of(consumer.take)]


def may_get_suspect(held: HeldMessages, view: PartitionView, consumer: WaitingConsumer) -> bool:
    """Return whether the attempt may get a suspect. Its owner gets nothing else, so no other partition is tried."""
    state, owner = view.journal.state, consumer.take.owner
    if state is None or consumer.take.isolates or not view.is_suspect_due():
        return False
    return not state.held_by(owner) and not held.elsewhere(view.journal.partition)[0]


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
    first: LakelogError | None = None
    for view in views:
        if not consumer.strict or view.journal.partition in consumer.own:
            if view.journal.stop is None:
                return None
            first = first or view.journal.stop.error
    return first
