"""Reads the progress of groups from journals, for callers that do not change it.

They read repeatedly, so the last states are cached and only new rows are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


class JournalReader:
    """The states of all cells, as they were last read."""

    def __init__(self, cells: Mapping[int, PartitionStore]) -> None:
        self._cells = cells
        self._kept: dict[tuple[int, int], tuple[int, int, DeliveryState]] = {}
        """By group and partition: a version of the journal, its nonce and its state. The most recently used is last."""

    def drop(self, cell: int) -> None:
        """Forget the states of all cells, because there are few."""
        self._kept = {}

    async def read(
        self, group: Group, topic: Topic, group_topic: GroupTopic, partitions: Sequence[int]
    ) -> list[DeliveryState]:
        """Return the states in the order of `partitions`. They belong to the caller."""
        by_cell: dict[int, list[int]] = {}
        for partition in partitions:
            by_cell.setdefault(topic.cells[partition], []).append(partition)
        found: dict[int, DeliveryState] = {}
        for cell, shares in by_cell.items():
            for first in range(0, len(shares), READ_TOGETHER):
                starts = {each: group_topic.start(each) for each in shares[first : first + READ_TOGETHER]}
                found |= await self._read(cell, group, topic, starts, is_kept=len(partitions) <= KEEP)
        return [found[partition] for partition in partitions]

    async def _read(
        self, cell: int, group: Group, topic: Topic, starts: Mapping[int, int], *, is_kept: bool
    ) -> dict[int, DeliveryState]:
        places = {partition: (group.group_id, topic.pid(partition)) for partition in starts}
        kept = self._kept
        # Removed: a concurrent read of the same journal must not replay on top of this state.
        known = {each: kept.pop(places[each], (0, 0, begin(start))) for each, start in starts.items()}
        asks = [
            JournalRequest(group_id=group.group_id, pid=places[each][1], after=version, after_nonce=nonce)
            for each, (version, nonce, _) in known.items()
        ]
        reads = await self._cells[cell].groups.journals_read(asks)
        if kept is not self._kept:
            # The cell was dropped: these rows may not follow the cached state.
            return await self._read(cell, group, topic, starts, is_kept=is_kept)
        found = {}
        for (partition, (version, nonce, state)), read in zip(known.items(), reads, strict=True):
            state, _ = replay_rows(state, read)
            if read.rows:
                version, nonce = read.rows[-1].version, read.rows[-1].nonce
            if version and is_kept:
                kept[places[partition]] = (version, nonce, state)
                state = decode_state(encode_state(state))
            found[partition] = state
        while len(kept) > KEEP:
            del kept[next(iter(kept))]
        return found
