"""Moves staged messages to the partitions of their keys, if partitions were added before the decision about a write.

The batches of an attempt stay as they are. Copies, split by the new number of partitions, are staged under an attempt
whose name consists of the old name, the epoch and the old partition. Any server can therefore repeat or continue a
move, and two moves at the same time stage the same batches.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping

from lakelog.batches import decode, encode, partitions_of, split
from lakelog.engine.log.threads import Threads
from lakelog.errors import Unavailable
from lakelog.model import write
from lakelog.model.message import partition_of_id
from lakelog.model.topic import Topic
from lakelog.storage.staging import StagedBatch, StagedPart
from lakelog.storage.store import PartitionStore, Payload

_READ_BYTES = 8 << 20
_CALL_SECONDS = 5.0
"""After this time, a call begins no further share of an attempt. The next call continues."""


class StagedMoves:
    """Moves the staged messages of writes; one per engine."""

    def __init__(self, cells: Mapping[int, PartitionStore], threads: Threads) -> None:
        self._cells = cells
        self._threads = threads

    async def move(self, topic: Topic, options: write.DecideOptions) -> list[str]:
        """Return the attempts that hold the messages of the named ones by the topic's number of partitions.

        Messages of a key keep their order: an attempt staged all of them for one partition, in the order of its
        batches. Messages without a key stay in their partitions.

        Raises:
            Unavailable: If there is more to move than fits into a call. A repeated call continues.
        """
        cells = sorted(set(topic.cells))
        found = await asyncio.gather(
            *(self._cells[cell].staging.staged_parts(topic.incarnation, options.write_id) for cell in cells)
        )
        parts = [part for some in found for part in some]
        staged: Counter[str] = Counter()
        for part in parts:
            staged[part.attempt] += part.count
        order = {attempt: place for place, attempt in enumerate(options.attempts)}
        sources = sorted((order[part.attempt], part.pid, part) for part in parts if part.attempt in order)
        moved: list[str] = []
        has_copied = False
        deadline = time.monotonic() + _CALL_SECONDS
        for place, (_, pid, part) in enumerate(sources):
            name = f"{part.attempt}~{topic.epoch}.{partition_of_id(pid)}"
            moved.append(name)
            if staged[name] == part.count:
                continue
            if has_copied and time.monotonic() > deadline:
                raise Unavailable(
                    f"Partitions were added to topic '{topic.name}' during write '{options.write_id}'. "
                    f"{place} of {len(sources)} shares of its messages are moved; try again to continue.",
                    topic=topic.name,
                    write_id=options.write_id,
                )
            await self._copy(topic, part, options.write_id, name)
            has_copied = True
        write.check_attempts(moved)
        return moved

    async def _copy(self, topic: Topic, part: StagedPart, write_id: str, name: str) -> None:
        source = self._cells[topic.cells[partition_of_id(part.pid)]].staging
        after = -1
        while batches := await source.staged_read(
            part.pid, write_id, part.attempt, after=after, limit_bytes=_READ_BYTES
        ):
            size = sum(len(batch.payload.data) for batch in batches)
            by_cell = await self._threads.run(size, _split, topic, batches, name)
            await asyncio.gather(*(self._cells[cell].staging.stage(some) for cell, some in by_cell.items()))
            after = batches[-1].number


def _split(topic: Topic, batches: list[StagedBatch], name: str) -> dict[int, list[StagedBatch]]:
    """Return the batches by cell, split by the partition of each key."""
    found: dict[int, list[StagedBatch]] = defaultdict(list)
    for batch in batches:
        rows = decode(batch.payload.data)
        place = rows.schema.get_field_index("key")
        stays = partition_of_id(batch.pid)
        if place < 0:
            shares = [(stays, rows)]
        else:
            chosen = partitions_of(rows.column(place), topic.partitions)
            chosen[chosen < 0] = stays
            shares = split(rows, chosen, topic.partitions)
        for partition, share in shares:
            found[topic.cells[partition]].append(
                StagedBatch(
                    pid=topic.pid(partition),
                    write_id=batch.write_id,
                    attempt=name,
                    number=batch.number,
                    epoch=topic.epoch,
                    payload=Payload(data=encode(share), count=share.num_rows),
                )
            )
    return found
