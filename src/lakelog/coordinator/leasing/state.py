"""The delivery state of one group in one partition: frontier, open leases, waiting retries and skipped messages.

A message is finished if it is below the frontier and in none of the other three. Fields that begin with `_` are indexes
over the other fields and are not stored. Only `applying` changes a state.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lakelog.coordinator.leasing.closed_leases import ClosedLeases
from lakelog.coordinator.leasing.open_messages import OpenMessages


class MessageState(StrEnum):
    """State of a message for one group and position epoch, derived from `DeliveryState`. The last six are final."""

    UNCONSIDERED = "unconsidered"
    LEASED = "leased"
    WAITING = "waiting"
    SKIPPED = "skipped"
    ACKED = "acked"
    DEAD = "dead"
    DISCARDED = "discarded"
    FILTERED = "filtered"
    EXPIRED = "expired"
    CUT = "cut"

    @property
    def is_end(self) -> bool:
        return self not in MESSAGE_TRANSITIONS


MESSAGE_TRANSITIONS: Mapping[MessageState, frozenset[MessageState]] = {
    MessageState.UNCONSIDERED: frozenset(
        {
            MessageState.LEASED,
            MessageState.SKIPPED,
            MessageState.ACKED,
            MessageState.FILTERED,
            MessageState.EXPIRED,
            MessageState.CUT,
        }
    ),
    MessageState.LEASED: frozenset(
        {
            MessageState.ACKED,
            MessageState.DISCARDED,
            MessageState.DEAD,
            MessageState.FILTERED,
            MessageState.WAITING,
            MessageState.SKIPPED,
        }
    ),
    MessageState.WAITING: frozenset({MessageState.LEASED, MessageState.EXPIRED, MessageState.CUT}),
    MessageState.SKIPPED: frozenset({MessageState.LEASED, MessageState.EXPIRED, MessageState.CUT}),
}
"""Possible transitions of a message in one operation. Only a cursor group acks messages that were not leased."""


@dataclass(slots=True)
class Lease:
    """Messages that one owner holds. `open` has the messages without an answer."""

    token: int
    owner: str
    request: str
    granted_ms: int
    until_ms: int
    suspect: bool
    alone: bool
    open: OpenMessages
    done: dict[int, list[int]] = field(default_factory=dict)
    """Answered offsets, as flat ranges, by `DeliveryOutcome`. They identify a repeated answer."""
    reissued: bool = False
    """True if the request was repeated. Two calls then know the lease, and a failed call must not release it."""


@dataclass(slots=True)
class WaitingMessage:
    """A message that is redelivered when it is due. It blocks its key."""

    due_ms: int
    key: int


@dataclass(slots=True)
class DeliveryHistory:
    """Deliveries and failures of an unfinished message. The current delivery is included.

    `suspect` is true while the message waits after a lost lease. `lost` stays true after it.
    """

    deliveries: int = 1
    failures: int = 0
    suspect: bool = False
    lost: bool = False


@dataclass(slots=True)
class FinishedCounts:
    """Number of messages by final state, since the last seek."""

    acked: int = 0
    dead: int = 0
    discarded: int = 0
    filtered: int = 0
    expired: int = 0
    cut: int = 0


@dataclass(slots=True)
class DeliveryState:
    """Progress of a group in a partition. Created by `begin` or the codec, and changed only by `apply`."""

    start: int
    frontier: int
    epoch: int = 0
    generation: int = 0
    first_token: int = 0
    """The last token before this position epoch, whose leases have higher tokens."""
    last_token: int = 0
    leases: dict[int, Lease] = field(default_factory=dict)
    waiting: dict[int, WaitingMessage] = field(default_factory=dict)
    skipped: dict[int, list[int]] = field(default_factory=dict)
    histories: dict[int, DeliveryHistory] = field(default_factory=dict)
    expires: dict[int, int] = field(default_factory=dict)
    counts: FinishedCounts = field(default_factory=FinishedCounts)
    closed: ClosedLeases = field(default_factory=ClosedLeases)

    open_count: int = 0
    skipped_count: int = 0
    _open_keys: set[int] = field(default_factory=set)
    """Keys with open messages. A key has open messages in at most one lease."""
    _waiting_keys: dict[int, int] = field(default_factory=dict)
    _ready: dict[int, None] = field(default_factory=dict)
    _owners: dict[str, set[int]] = field(default_factory=dict)
    _due: list[tuple[int, int]] = field(default_factory=list)
    _suspects: list[tuple[int, int]] = field(default_factory=list)
    _until: list[tuple[int, int]] = field(default_factory=list)
    _cut_checked: int = -1

    # Queries ----------------------------------------------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """Return the end of the finished prefix. Messages below it stay finished in this position epoch."""
        lowest = self.frontier
        for lease in self.leases.values():
            first = lease.open.ranges[0]
            if first < lowest:
                lowest = first
        if self.waiting:
            lowest = min(lowest, min(self.waiting))
        if self.skipped:
            lowest = min(lowest, min([offsets[0] for offsets in self.skipped.values()]))
        return lowest

    def next_due_ms(self) -> int | None:
        """Return the next time at which a retry is due or a lease expires."""
        times = [time for time in (self.first_due(), self.first_lost_ms()) if time is not None]
        return min(times, default=None)

    def first_lost_ms(self) -> int | None:
        """Return when the first suspect is due or the first lease expires, which makes its messages suspects."""
        times = [time for time in (self.first_suspect_due(), self.first_until()) if time is not None]
        return min(times, default=None)

    def has_ready(self) -> bool:
        """Return whether skipped messages can be delivered because their keys are free again."""
        return bool(self._ready)

    def ready_keys(self) -> Iterable[int]:
        return self._ready

    def blocked_among(self, keys: Sequence[int]) -> set[int]:
        """Return the keys among these that are blocked by an earlier message."""
        found = self._open_keys.intersection(keys)
        if self._waiting_keys or self.skipped:
            unique = set(keys)
            found |= self._waiting_keys.keys() & unique
            found |= self.skipped.keys() & unique
        return found

    def any_blocked(self) -> bool:
        return bool(self._open_keys or self._waiting_keys or self.skipped)

    def held_by(self, owner: str) -> list[Lease]:
        return [self.leases[token] for token in sorted(self._owners.get(owner, ()))]

    def are_finished(self, offsets: set[int]) -> bool:
        """Return whether none of these messages below the frontier is leased, waiting or skipped."""
        return (
            offsets.isdisjoint(self.waiting)
            and all(offsets.isdisjoint(lease.open) for lease in self.leases.values())
            and all(offsets.isdisjoint(those) for those in self.skipped.values())
        )

    def deliveries(self, offset: int) -> int:
        """Return the number of deliveries of a message that was delivered at least once."""
        history = self.histories.get(offset)
        return history.deliveries if history else 1

    def failures(self, offset: int) -> int:
        history = self.histories.get(offset)
        return history.failures if history else 0

    # Heaps: outdated entries are removed when they reach the top ------------------------------------------------------

    def first_due(self) -> int | None:
        return self._first_waiting(self._due, suspect=False)

    def first_suspect_due(self) -> int | None:
        return self._first_waiting(self._suspects, suspect=True)

    def first_until(self) -> int | None:
        while self._until:
            until, token = self._until[0]
            lease = self.leases.get(token)
            if lease is not None and lease.until_ms == until:
                return until
            heapq.heappop(self._until)
        return None

    def due(self, now: int, limit: int) -> list[int]:
        """Return waiting messages that are due, earliest first."""
        return self._take(self._due, now, limit, suspect=False)

    def due_suspects(self, now: int, limit: int) -> list[int]:
        return self._take(self._suspects, now, limit, suspect=True)

    def expired_leases(self, now: int) -> list[Lease]:
        """Return the leases that have expired."""
        found = []
        while (until := self.first_until()) is not None and until <= now:
            found.append(self.leases[heapq.heappop(self._until)[1]])
        for lease in found:
            heapq.heappush(self._until, (lease.until_ms, lease.token))
        return found

    def _first_waiting(self, heap: list[tuple[int, int]], *, suspect: bool) -> int | None:
        while heap:
            due, offset = heap[0]
            if self._is_waiting(due, offset, suspect):
                return due
            heapq.heappop(heap)
        return None

    def _is_waiting(self, due: int, offset: int, suspect: bool) -> bool:
        waiting = self.waiting.get(offset)
        return waiting is not None and waiting.due_ms == due and self.histories[offset].suspect == suspect

    def _take(self, heap: list[tuple[int, int]], now: int, limit: int, *, suspect: bool) -> list[int]:
        found: list[tuple[int, int]] = []
        while len(found) < limit and heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            if self._is_waiting(*entry, suspect) and entry not in found[-1:]:
                found.append(entry)
        for entry in found:
            heapq.heappush(heap, entry)
        return [offset for _, offset in found]


def begin(start: int, last_token: int = 0) -> DeliveryState:
    """Return the state of a group that has read nothing. Its leases get tokens above `last_token`."""
    return DeliveryState(start=start, frontier=start, first_token=last_token, last_token=last_token)
