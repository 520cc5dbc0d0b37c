"""The line at a desk: who asks, what is known of each partition, and one round of matching them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from lakelog.coordinator.leasing import AcquireMessages, Granted, Reply
from lakelog.engine.clock import Clock
from lakelog.engine.leasing.batch_cache import Shelf
from lakelog.engine.leasing.journal import Ledger
from lakelog.engine.leasing.journals import Ledgers
from lakelog.engine.waiters import Waiters
from lakelog.errors import LakelogError, OutcomeUnknown

MAX_PARTITIONS_PER_ASK = 128

Got = list[tuple[Ledger, Granted]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What all desks of an engine share."""

    ledgers: Ledgers
    shelf: Shelf
    waiters: Waiters
    clocks: Mapping[int, Clock]


@dataclass(slots=True, eq=False)
class Ask:
    """One who stands in line. `own` are the member's partitions; `strict`: it takes from no others."""

    take: AcquireMessages
    done: asyncio.Future[Got]
    own: frozenset[int] = frozenset()
    strict: bool = False
    is_repeat: bool = False
    """The call was sent before, and says so."""
    answered: frozenset[int] = frozenset()
    """Partitions of the answers that come with the call and are decided with it: they may free messages there."""
    is_tried: bool = False
    is_last: bool = False
    """It waits no longer: it is served now, or not at all."""
    is_dismissed: bool = False
    has_waited: bool = False
    """There was nothing when it came."""
    seen: dict[int, int] = field(default_factory=dict)
    """Partitions that had nothing for this owner, though perhaps for others, with the place's marks then."""
    unsearched: dict[int, None] = field(default_factory=dict)
    """Of a repeat: partitions that may have a lease of the same request. They are tried first, for that lease alone."""


@dataclass(slots=True, eq=False)
class Place:
    """What the desk knows of one partition."""

    ledger: Ledger
    shelf: Shelf
    clock: Clock
    marks: int = 0
    """Rises whenever something happened here."""
    wanted: int = 0
    """How many messages are being asked for now."""
    ends: tuple[int, int] = (0, 0)
    """Log start and high watermark when the desk last looked by itself."""

    def room(self) -> int:
        """How many messages there may be beyond those that calls ask for now."""
        return self._available() - self.wanted

    def _available(self) -> int:
        """How many messages there may be; at least one."""
        ledger, state = self.ledger, self.ledger.state
        if state is None:
            return 1
        # No more than the group may have in hand here: whoever asks for more gets the rest from other partitions.
        room = max(0, ledger.group.settings.window - state.open_count - len(state.waiting))
        ready = self.shelf.backlog(ledger.pid, state.frontier) + state.skipped_count
        return max(1, min(room, ready) + len(state.waiting))

    def may_be_freed(self) -> bool:
        """Whether there are messages that an answer may let through: of a blocked key, or behind a full window."""
        state = self.ledger.state
        return state is not None and bool(state.skipped_count or self.shelf.backlog(self.ledger.pid, state.frontier))

    def due_in_ms(self) -> int | None:
        return self.ledger.due_in_ms(self.clock)

    def is_suspect_due(self) -> bool:
        return self.ledger.is_suspect_due(self.clock)

    def has_lease_of(self, take: AcquireMessages) -> bool:
        """Whether the same request has a lease here, as far as this process knows."""
        state = self.ledger.state
        if state is None or not state.leases or not take.request:
            return False
        return any(lease.request == take.request for lease in state.held_by(take.owner))


def repeats_at(place: Place, line: Iterable[Ask]) -> list[Ask]:
    """Calls in line that have a lease here, granted by another server or to another call with the same request."""
    state = place.ledger.state
    owners = {lease.owner for lease in state.leases.values()} if state is not None else set()
    return [ask for ask in line if ask.take.owner in owners and place.has_lease_of(ask.take)]


def in_hand(places: Sequence[Place], owner: str, partition: int) -> tuple[int, bool]:
    """How many messages the owner holds in other partitions, and whether one of them is a suspect."""
    count, suspect = 0, False
    for number, place in enumerate(places):
        state = place.ledger.state
        if number != partition and state is not None and state.leases:
            for lease in state.held_by(owner):
                count += len(lease.open)
                suspect = suspect or lease.suspect
    return count, suspect


def may_get_suspect(places: Sequence[Place], ask: Ask, partition: int) -> bool:
    """A suspect is all that its owner gets: who is tried for one is tried nowhere else."""
    place, owner = places[partition], ask.take.owner
    state = place.ledger.state
    if state is None or ask.take.isolates or not place.is_suspect_due():
        return False
    return not state.held_by(owner) and not in_hand(places, owner, partition)[0]


def unknown(places: Iterable[Place]) -> list[Ledger]:
    """Of which this process has no progress yet, and nothing is on its way; as many as an ask may try."""
    ledgers = (place.ledger for place in places)
    return list(islice((each for each in ledgers if each.state is None and not each.busy), MAX_PARTITIONS_PER_ASK))


@dataclass(slots=True, eq=False)
class Try:
    """One ask at one partition, on its way. A share of 0 looks for the lease of a repeat, and takes nothing else."""

    place: Place
    partition: int
    share: int
    marks: int
    alone: bool
    reply: asyncio.Future[Reply]


def refusal_of(tries: Sequence[Try], refusal: BaseException | None) -> BaseException | None:
    """Why the ask is refused, if it is: not because one partition is stopped, while others go on."""
    for each in tries:
        failed, stop = each.reply.exception(), each.place.ledger.stop
        is_stopped = stop is not None and failed is stop.error
        if failed is not None and not is_stopped and not isinstance(refusal, OutcomeUnknown):
            refusal = failed
    if any(each.share == 0 and each.reply.exception() is None for each in tries):
        # A cell that does not answer keeps no repeat from what the others have.
        return refusal if isinstance(refusal, OutcomeUnknown) else None
    return refusal


def stop_of_all(places: Sequence[Place], ask: Ask) -> LakelogError | None:
    """Return an error if all partitions that the ask may take from are stopped, so that waiting would not help."""
    stops = [place.ledger.stop for place in places if not ask.strict or place.ledger.partition in ask.own]
    return stops[0].error if stops and stops[0] and all(stops) else None


class HandOut:
    """One round of matching: what each ask gets so far, and what is left in each partition."""

    def __init__(self, places: Sequence[Place], hot: Sequence[int], members: Mapping[int, Ask]) -> None:
        """`hot` are the partitions to try, in this order; `members` has who asked for a partition's own member."""
        self._places = places
        self._hot = hot
        self._members = members
        self._left: dict[int, int] = {}
        self._wants: dict[Ask, int] = {}
        self._chosen: dict[Ask, dict[int, int]] = {}

    def match(self, line: Sequence[Ask]) -> dict[Ask, dict[int, int]]:
        """Who tries which partitions, and for how many messages."""
        if not self._hot or not line:
            return {}
        busy = self._match_own(set(line)) if self._members else set()
        # A member helps out elsewhere only while there is nothing in its own partitions.
        free = [ask for ask in line if ask not in busy and not ask.strict and self._wants.get(ask, 1) > 0]
        for number, ask in enumerate(free):
            # Each begins elsewhere, so that all partitions work at once.
            at = number % len(self._hot)
            for partition in (*self._hot[at:], *self._hot[:at]):
                if not self._give(ask, partition):
                    break
        return self._chosen

    def _match_own(self, line: set[Ask]) -> set[Ask]:
        """Gives hot partitions to their own members, where those are in line: who got something."""
        busy: set[Ask] = set()
        for partition in self._hot:
            ask = self._members.get(partition)
            if ask is not None and ask in line:
                self._give(ask, partition)
                busy.add(ask)
        return busy

    def _give(self, ask: Ask, partition: int) -> bool:
        """Lets the ask try the partition, if there is something left; whether it may try further ones."""
        place = self._places[partition]
        wants = self._wants.get(ask)
        if wants is None:
            wants = self._wants[ask] = ask.take.max_messages
        left = self._left.get(partition)
        if left is None:
            left = self._left[partition] = place.room()
        if wants <= 0:
            return False
        # Where there was nothing for this owner, something has to happen first.
        if left <= 0 or ask.seen.get(partition) == place.marks:
            return True
        shares = self._chosen.get(ask)
        apart = may_get_suspect(self._places, ask, partition)
        if apart and shares:
            return True
        if shares is None:
            shares = self._chosen[ask] = {}
        shares[partition] = share = 1 if apart else min(wants, max(left, wants // len(self._hot), 1))
        self._left[partition] = left - share
        full = apart or len(shares) == MAX_PARTITIONS_PER_ASK
        self._wants[ask] = 0 if full else wants - share
        return self._wants[ask] > 0
