"""Damage: ranges of a partition whose messages cannot be read, and a check whether damage stops a group.

The check reads the next message of a partition as a consumer would, so any server can detect damage, even without an
earlier error. Only messages in segments are read. The check changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from lakelog.engine.log.extents import Extents
from lakelog.errors import LakelogError, SegmentDamaged
from lakelog.model.message import partition_of_id
from lakelog.model.topic import Topic
from lakelog.storage.cold import ColdPlanRequest
from lakelog.storage.store import PartitionStore

TEST_SECONDS = 2.0
"""The time limit of a check. Partitions that were not read by then are considered sound."""
_AT_ONCE = 32
_KEEP_SECONDS = 5.0
"""How long known damage is cached."""
_KEPT = 1000

_log = logging.getLogger(__name__)


class Damage(NamedTuple):
    """Offsets that cannot be read: from `first` up to, not including, `end`."""

    first: int
    end: int


def damage_of(error: object) -> Damage | None:
    """Return the range that an error of `Extents` names; None for other errors."""
    if not isinstance(error, SegmentDamaged):
        return None
    first, end = error.subject.get("first_offset"), error.subject.get("end_offset")
    return Damage(first, end) if isinstance(first, int) and isinstance(end, int) else None


class DamageTest:
    """The known damage of all partitions; one per engine."""

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        self._known: dict[int, tuple[float, Damage]] = {}
        """The damage by partition id, with the time when it was found."""

    async def find(self, topic: Topic, offsets: Mapping[int, Collection[int]]) -> dict[int, Damage]:
        """Return the damage at these offsets by partition. Damage that cannot be detected in time is not included."""
        found: dict[int, Damage] = {}
        if self._extents.url is None:
            return found
        asks: dict[int, list[tuple[int, int]]] = {}
        for partition, some in offsets.items():
            pid = topic.pid(partition)
            if (known := self._remembered(pid, some)) is not None:
                found[partition] = known
            else:
                asks.setdefault(topic.cells[partition], []).extend((pid, offset) for offset in sorted(some))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TEST_SECONDS):
                for cell, of_cell in asks.items():
                    await self._test(cell, of_cell, found)
        return found

    async def _test(self, cell: int, asks: Sequence[tuple[int, int]], found: dict[int, Damage]) -> None:
        store = self._extents.cells[cell]
        try:
            cold = await _in_segments(store, asks)
            for at in range(0, len(cold), _AT_ONCE):
                share = cold[at : at + _AT_ONCE]
                reads = await self._extents.read_many(store, share, max_messages=1, max_bytes=1)
                for (pid, _), read in zip(share, reads, strict=True):
                    if (damage := damage_of(read)) is not None:
                        found.setdefault(partition_of_id(pid), damage)
                        self._remember(pid, damage)
        except LakelogError as error:
            _log.debug("Segments could not be tested for damage: %s", error)

    def _remembered(self, pid: int, offsets: Collection[int]) -> Damage | None:
        at, damage = self._known.get(pid, (0.0, Damage(0, 0)))
        is_it = any(damage.first <= offset < damage.end for offset in offsets)
        return damage if is_it and time.monotonic() - at < _KEEP_SECONDS else None

    def _remember(self, pid: int, damage: Damage) -> None:
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[pid] = (time.monotonic(), damage)


async def _in_segments(store: PartitionStore, asks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the offsets that are in verified segments; hot batches are not read for a check."""
    found: list[tuple[int, int]] = []
    # A plan has one range per partition; a range over several offsets would list all segments between them.
    while asks:
        each = dict(asks)
        plans = await store.cold.plans([ColdPlanRequest(pid=pid, start=at, end=at + 1) for pid, at in each.items()])
        found += [(plan.head.pid, each[plan.head.pid]) for plan in plans if plan.segments]
        asks = [(pid, at) for pid, at in asks if each[pid] != at]
    return found
