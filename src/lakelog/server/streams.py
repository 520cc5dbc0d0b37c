"""The unanswered messages of pushed streams, kept per process and updated by the answers that pass through it.

Answers may go to another process, so a stalled stream also checks with the engine, which is authoritative.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from lakelog.engine.leasing.consuming import Leased
from lakelog.errors import LakelogError
from lakelog.model.lease import Answered, LeaseAnswer, Ranges, Verb
from lakelog.model.progress import PartitionProgress
from lakelog.model.ranges import from_ranges


class Subscriber(NamedTuple):
    """The group, topic and owner of a stream."""

    environment_id: int
    topic: str
    group: str
    owner: str


class Hands:
    """The unanswered messages of one stream. `freed` is set when their number falls."""

    def __init__(self) -> None:
        self.freed = asyncio.Event()
        self._held: dict[tuple[int, int], set[int]] = {}
        """Offsets by partition and token."""

    @property
    def count(self) -> int:
        return sum(map(len, self._held.values()))

    def given(self, leased: Leased) -> None:
        self._held[leased.partition, leased.token] = set(leased.offsets)

    def answered(self, said: LeaseAnswer) -> None:
        if said.verb in (Verb.EXTEND, Verb.FILTER_REPEATS):
            return
        place = self._place(said)
        if place is None:
            return
        if said.verb is Verb.ACK_THROUGH:
            last = said.ranges[0][0]
            self._keep(place, {offset for offset in self._held[place] if offset > last})
        else:
            self._keep(place, {offset for offset in self._held[place] if not _within(offset, said.ranges)})

    def settle(self, progress: Iterable[PartitionProgress]) -> None:
        """Keep the messages that are leased according to the engine."""
        leases = {
            (each.partition, lease.token): set(from_ranges(lease.offsets)) for each in progress for lease in each.leases
        }
        for place, held in list(self._held.items()):
            self._keep(place, held & leases.get(place, set()))

    def _place(self, said: LeaseAnswer) -> tuple[int, int] | None:
        if said.token is not None:
            place = (said.partition, said.token)
            return place if place in self._held else None
        first = said.ranges[0][0]
        found = (place for place, held in self._held.items() if place[0] == said.partition and first in held)
        return next(found, None)

    def _keep(self, place: tuple[int, int], rest: set[int]) -> None:
        if len(rest) < len(self._held[place]):
            self.freed.set()
        if rest:
            self._held[place] = rest
        else:
            del self._held[place]


class Streams:
    """The streams of this process, by group, topic and owner."""

    def __init__(self) -> None:
        self._open: dict[Subscriber, set[Hands]] = {}

    @contextmanager
    def follow(self, subscriber: Subscriber) -> Iterator[Hands]:
        hands = Hands()
        self._open.setdefault(subscriber, set()).add(hands)
        try:
            yield hands
        finally:
            others = self._open[subscriber]
            others.discard(hands)
            if not others:
                del self._open[subscriber]

    def answered(
        self, caller: Subscriber, said: Sequence[LeaseAnswer], results: Sequence[Answered | LakelogError]
    ) -> None:
        for hands in self._open.get(caller, ()):
            for each, result in zip(said, results, strict=True):
                if isinstance(result, LakelogError):
                    continue
                hands.answered(each)
                if result.filtered:
                    hands.answered(replace(each, verb=Verb.ACK, offsets=tuple(result.filtered)))


def _within(offset: int, ranges: Ranges) -> bool:
    return any(first <= offset < end for first, end in ranges)
