"""The line at a desk: who asks, what is known of each partition, and one round of matching them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from lakelog.coordinator.leasing import Granted, Reply, Take
from lakelog.engine.ledger import Ledger
from lakelog.engine.shelf import Shelf

MAX_PARTITIONS_PER_ASK = 128

Got = list[tuple[Ledger, Granted]]


@dataclass(slots=True, eq=False)
class Ask:
    """One who stands in line. `own` are the member's partitions; `strict`: it takes from no others."""

    take: Take
    done: asyncio.Future[Got]
    own: frozenset[int] = frozenset()
    strict: bool = False
    is_tried: bool = False
    is_last: bool = False
    """It waits no longer: it is served now, or not at all."""
    is_dismissed: bool = False
    has_waited: bool = False
    """There was nothing when it came."""
    seen: dict[int, int] = field(default_factory=dict)
    """Partitions that had nothing for this owner, though perhaps for others, with the place's marks then."""


@dataclass(slots=True, eq=False)
class Place:
    """What the desk knows of one partition."""

    ledger: Ledger
    marks: int = 0
    """Rises whenever something happened here."""
    wanted: int = 0
    """How many messages are being asked for now."""
    ends: tuple[int, int] = (0, 0)
    """Log start and high watermark when the desk last looked by itself."""

    def available(self, shelf: Shelf) -> int:
        """How many messages there may be; at least one."""
        ledger, state = self.ledger, self.ledger.state
        if state is None:
            return 1
        # No more than the group may have in hand here: whoever asks for more gets the rest from other partitions.
        room = max(0, ledger.group.settings.window - state.open_count - len(state.waiting))
        ready = shelf.backlog(ledger.pid, state.frontier) + state.skipped_count
        return max(1, min(room, ready) + len(state.waiting))


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


def unknown(places: Iterable[Place]) -> list[Ledger]:
    """Of which this process has no progress yet, and nothing is on its way; as many as an ask may try."""
    ledgers = (place.ledger for place in places)
    return list(islice((each for each in ledgers if each.state is None and not each.busy), MAX_PARTITIONS_PER_ASK))


@dataclass(slots=True, eq=False)
class Try:
    """One ask at one partition, on its way."""

    place: Place
    partition: int
    share: int
    marks: int
    alone: bool
    reply: asyncio.Future[Reply]


class Counter(Protocol):
    """What matching asks of a desk."""

    def room(self, partition: int) -> int:
        """How many messages there may be that nobody is asking for yet."""
        ...

    def is_seen(self, ask: Ask, partition: int) -> bool:
        """Whether there was nothing for this owner since anything happened there."""
        ...

    def may_get_suspect(self, ask: Ask, partition: int) -> bool:
        """A suspect is all that its owner gets: who is tried for one is tried nowhere else."""
        ...


class HandOut:
    """One round of matching: what each ask gets so far, and what is left in each partition."""

    def __init__(self, desk: Counter, hot: int) -> None:
        self._desk = desk
        self._hot = hot
        self._left: dict[int, int] = {}
        self._wants: dict[Ask, int] = {}
        self.chosen: dict[Ask, dict[int, int]] = {}

    def has_room(self, ask: Ask) -> bool:
        return self._wants.get(ask, 1) > 0

    def give(self, ask: Ask, partition: int) -> bool:
        """Lets the ask try the partition, if there is something left; whether it may try further ones."""
        wants = self._wants.get(ask)
        if wants is None:
            wants = self._wants[ask] = ask.take.max_messages
        left = self._left.get(partition)
        if left is None:
            left = self._left[partition] = self._desk.room(partition)
        if wants <= 0:
            return False
        if left <= 0 or self._desk.is_seen(ask, partition):
            return True
        shares = self.chosen.get(ask)
        apart = self._desk.may_get_suspect(ask, partition)
        if apart and shares:
            return True
        if shares is None:
            shares = self.chosen[ask] = {}
        shares[partition] = share = 1 if apart else min(wants, max(left, wants // self._hot, 1))
        self._left[partition] = left - share
        full = apart or len(shares) == MAX_PARTITIONS_PER_ASK
        self._wants[ask] = 0 if full else wants - share
        return self._wants[ask] > 0
