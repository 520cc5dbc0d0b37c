"""Reads the progress of groups from journals, for callers that do not change it.

They read repeatedly, so the last states are cached and only new rows are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lakelog.coordinator.leasing.codec import decode_state, encode_state
from lakelog.coordinator.leasing.state import DeliveryState, begin
from lakelog.engine.leasing.journal import replay_rows
from lakelog.model.group import Group, GroupTopic
from lakelog.model.topic import Topic
from lakelog.storage.groups import JournalRequest
from lakelog.storage.store import PartitionStore

KEEP = 500
"""The number of states that are cached. The states of a topic with more partitions are not cached at all."""
READ_TOGETHER = 1000
"""The largest number of journals that one statement reads; other calls are handled between two of them."""


Place = tuple[int, int]
"""The ids of a group and of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartitions:
    """A group in some partitions of a topic."""

    group: Group
    topic: Topic
    group_topic: GroupTopic
    partitions: Sequence[int]

    @property
    def places(self) -> list[Place]:
        """The ids of the group and of each partition."""
        return [(self.group.group_id, self.topic.pid(partition)) for partition in self.partitions]


class JournalReader:
    """The states of all cells, as they were last read."""

    def __init__(self, cells: Mapping[int, PartitionStore]) -> None:
        self._cells = cells
        self._kept: dict[Place, tuple[int, int, DeliveryState]] = {}
        """By group and partition: a version of the journal, its nonce and its state. The most recently used is last."""

    def drop(self, cell: int) -> None:
        """Forget the states of all cells, because there are few."""
        self._kept = {}

    async def read(self, asked: Sequence[GroupPartitions]) -> list[list[DeliveryState]]:
        """Return the states of each group in its partitions, in the order of `partitions`. They belong to the caller.

        The number of statements depends on the number of partitions, and not on that of groups and topics.
        """
        by_cell: dict[int, dict[Place, int]] = {}
        kept: set[Place] = set()
        for each in asked:
            for partition, place in zip(each.partitions, each.places, strict=True):
                by_cell.setdefault(each.topic.cells[partition], {})[place] = each.group_topic.start(partition)
            if len(each.partitions) <= KEEP:
                kept.update(each.places)
        found: dict[Place, DeliveryState] = {}
        for cell, starts in by_cell.items():
            places = list(starts)
            for first in range(0, len(places), READ_TOGETHER):
                found |= await self._read(
                    cell, {each: starts[each] for each in places[first : first + READ_TOGETHER]}, kept
                )
        return [[found[place] for place in each.places] for each in asked]

    async def _read(
        self, cell: int, starts: Mapping[Place, int], to_keep: Collection[Place]
    ) -> dict[Place, DeliveryState]:
        kept = self._kept
        # Removed: a concurrent read of the same journal must not replay on top of this state.
        known = {place: kept.pop(place, (0, 0, begin(start))) for place, start in starts.items()}
        asks = [
            JournalRequest(group_id=group_id, pid=pid, after=version, after_nonce=nonce)
            for (group_id, pid), (version, nonce, _) in known.items()
        ]
        reads = await self._cells[cell].groups.journals_read(asks)
        if kept is not self._kept:
            # The cell was dropped: these rows may not follow the cached state.
            return await self._read(cell, starts, to_keep)
        found = {}
        for (place, (version, nonce, state)), read in zip(known.items(), reads, strict=True):
            state, _ = replay_rows(state, read)
            if read.rows:
                version, nonce = read.rows[-1].version, read.rows[-1].nonce
            if version and place in to_keep:
                kept[place] = (version, nonce, state)
                state = decode_state(encode_state(state))
            found[place] = state
        while len(kept) > KEEP:
            del kept[next(iter(kept))]
        return found
