"""Converts positions to offsets in the partitions of a topic, and checks which member may commit them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from lakelog.engine.log.extents import Extents
from lakelog.errors import InvalidRequest, NotOwner, StaleGeneration
from lakelog.model.group import NoStart, Start
from lakelog.model.membership import Membership
from lakelog.model.message import partition_of_id
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest
from lakelog.model.topic import Topic
from lakelog.storage.store import Head, PartitionStore

_HEADS_TOGETHER = 10_000
"""The largest number of heads that one statement reads."""
_AT_ONCE = 16
"""The largest number of concurrent calls for single partitions."""

Found = TypeVar("Found")


async def gathered(calls: Iterable[Coroutine[object, object, Found]]) -> list[Found]:
    """Return the results in order, with a few calls at a time. All calls finish before the first failure is raised."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Coroutine[object, object, Found]) -> Found:
        async with gate:
            return await call

    every = list(calls)
    try:
        answers = await asyncio.gather(*map(one, every), return_exceptions=True)
    finally:
        # If this call was cancelled, some calls never had their turn.
        for call in every:
            call.close()
    found: list[Found] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found


async def heads_of(
    cells: Mapping[int, PartitionStore], topic: Topic, only: Collection[int] | None = None
) -> dict[int, Head]:
    """Return the heads by partition, in all cells or `only` in some; a head that is not created yet is missing."""
    shares = [(cell, pids) for cell, pids in topic.pids_by_cell().items() if only is None or cell in only]
    heads = await asyncio.gather(*(cells[cell].heads_read(pids) for cell, pids in shares))
    return {partition_of_id(head.pid): head for share in heads for head in share}


async def heads_of_all(
    cells: Mapping[int, PartitionStore], topics: Iterable[Topic], silent: Collection[int] = ()
) -> dict[int, dict[int, Head]]:
    """Return the heads of several topics by incarnation and partition, without those in `silent` cells."""
    shares: dict[int, dict[int, int]] = {}
    found: dict[int, dict[int, Head]] = {}
    for topic in topics:
        if topic.incarnation not in found:
            found[topic.incarnation] = {}
            for cell, pids in topic.pids_by_cell().items():
                shares.setdefault(cell, {}).update(dict.fromkeys(pids, topic.incarnation))
    reads = [
        (cell, list(pids)[first : first + _HEADS_TOGETHER])
        for cell, pids in shares.items()
        if cell not in silent
        for first in range(0, len(pids), _HEADS_TOGETHER)
    ]
    heads = await gathered(cells[cell].heads_read(pids) for cell, pids in reads)
    for (cell, _), share in zip(reads, heads, strict=True):
        for head in share:
            found[shares[cell][head.pid]][partition_of_id(head.pid)] = head
    return found


class Located(NamedTuple):
    """The offset of a position in one partition, the partition's log start and the timeline of its cell then."""

    offset: int
    log_start: int
    timeline: int


async def located_at(extents: Extents, topic: Topic, start: Start, partitions: Sequence[int]) -> list[Located]:
    """Return where `start` is in each of the partitions, between log start and high watermark."""
    while True:
        timelines = _timelines(extents, topic, partitions)
        found = await _located_at(extents, topic, start, partitions)
        # A failover during the reads may have changed the end.
        if timelines == _timelines(extents, topic, partitions):
            return [Located(*each, timeline) for each, timeline in zip(found, timelines, strict=True)]


def _timelines(extents: Extents, topic: Topic, partitions: Sequence[int]) -> list[int]:
    return [extents.cells[topic.cells[partition]].timeline for partition in partitions]


async def _located_at(extents: Extents, topic: Topic, start: Start, partitions: Sequence[int]) -> list[tuple[int, int]]:
    """Return the offset and the log start in each of the partitions."""
    cells = extents.cells
    heads = await heads_of(cells, topic)
    times: Mapping[int, int] = {}
    if isinstance(start, AtTime):
        asked = [partition for partition in partitions if partition in heads]
        calls = (extents.offset_at_time(cells[topic.cells[one]], topic.pid(one), start.time) for one in asked)
        times = dict(zip(asked, await gathered(calls), strict=True))
        # Read again: the log start may have risen, and a time could then resolve to an offset below it.
        heads = await heads_of(cells, topic)
    return [_located(start, heads.get(partition), times.get(partition, 0)) for partition in partitions]


def check_held(membership: Membership, topic: str, partitions: Iterable[int], generation: int | None) -> None:
    """Raise an error unless the member has each partition, or is about to release it."""
    held = {*membership.assigned.get(topic, ()), *membership.revoked.get(topic, ())}
    for partition in partitions:
        if partition not in held:
            if generation is not None and generation != membership.generation:
                raise StaleGeneration(generation=membership.generation)
            raise NotOwner(
                f"Partition {partition} of topic '{topic}' is not assigned to member '{membership.member_id}'.",
                member_id=membership.member_id,
                partition=partition,
            )


def _located(start: Start, head: Head | None, at_time: int) -> tuple[int, int]:
    if isinstance(start, NoStart):
        raise InvalidRequest("A position is needed: earliest, latest, a time or an offset.")
    if head is None:
        return 0, 0
    match start:
        case Earliest():
            wanted = head.log_start
        case Latest(back):
            wanted = head.next_offset - back
        case AtTime():
            wanted = at_time
        case AtOffset(offset):
            wanted = offset
    return max(head.log_start, min(wanted, head.next_offset)), head.log_start
