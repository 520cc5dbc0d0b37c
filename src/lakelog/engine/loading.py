"""What decisions about ledgers need to read: journals, and the log where somebody wants messages of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from lakelog.coordinator.leasing import Take
from lakelog.engine.clock import Clock
from lakelog.engine.ledger import Ledger, Turn, fail, replayed
from lakelog.engine.shelf import Shelf
from lakelog.errors import LakelogError
from lakelog.model.group import GroupKind
from lakelog.storage.groups import JournalAsk
from lakelog.storage.store import PartitionStore


class Loader:
    """Of all cells; one per engine."""

    def __init__(self, cells: Mapping[int, PartitionStore], shelf: Shelf, clocks: Mapping[int, Clock]) -> None:
        self._cells = cells
        self._shelf = shelf
        self._clocks = clocks

    async def load(self, cell: int, ledgers: Sequence[Ledger]) -> None:
        """Those that have no state."""
        if not self._clocks[cell].known:
            self._clocks[cell].heard(int((await self._cells[cell].clock()).timestamp() * 1000))
        if not ledgers:
            return
        asks = [JournalAsk(group_id=ledger.group.group_id, pid=ledger.pid) for ledger in ledgers]
        reads = await self._cells[cell].groups.journals_read(asks)
        for ledger, read in zip(ledgers, reads, strict=True):
            self._clocks[cell].heard(read.clock_ms)
            ledger.state, ledger.since_snapshot = replayed(ledger.beginning(), read)
            ledger.version = read.rows[-1].version if read.rows else 0
            ledger.seen_at = time.monotonic()
            if ledger.changed:
                # Another server granted what is open: somebody here has to know when it is over.
                ledger.changed(ledger)

    async def catch_up(self, cell: int, ledgers: Sequence[Ledger]) -> list[bool]:
        """Whether each had missed something."""
        asks = [JournalAsk(group_id=each.group.group_id, pid=each.pid, after=each.version) for each in ledgers]
        reads = await self._cells[cell].groups.journals_read(asks)
        missed = []
        for ledger, read in zip(ledgers, reads, strict=True):
            self._clocks[cell].heard(read.clock_ms)
            ledger.seen_at = time.monotonic()
            missed.append(bool(read.rows))
            if read.rows and ledger.state is not None:
                ledger.state, ledger.since_snapshot = replayed(ledger.state, read, ledger.since_snapshot)
                ledger.version = read.rows[-1].version
                if ledger.changed:
                    ledger.changed(ledger)
        return missed

    async def fill(self, turns: Sequence[Turn]) -> None:
        """Reads the log where somebody wants messages of it. What cannot be read fails its own askers."""
        by_topic: dict[tuple[int, int], list[Turn]] = {}
        for turn in turns:
            ledger = turn.ledger
            if ledger.group.kind is GroupKind.CURSOR or any(isinstance(each.operation, Take) for each in turn.asked):
                by_topic.setdefault((ledger.group.group_id, ledger.topic.incarnation), []).append(turn)
        await asyncio.gather(*(self._fill_topic(each) for each in by_topic.values()))

    async def _fill_topic(self, turns: list[Turn]) -> None:
        # Some may have been asked before partitions were added.
        topic = max((turn.ledger.topic for turn in turns), key=lambda each: each.partitions)
        try:
            if turns[0].ledger.group.kind is GroupKind.CURSOR:
                await self._shelf.look(topic, [turn.ledger.partition for turn in turns])
                return
            frontiers = {turn.ledger.partition: turn.ledger.frontier for turn in turns}
            await self._shelf.fill(topic, frontiers)
            # Where retention took what was to come next, the decision will move to the log start.
            starts = {partition: self._shelf.row(topic.pid(partition)).log_start for partition in frontiers}
            await self._shelf.fill(topic, {n: start for n, start in starts.items() if start > frontiers[n]})
        except LakelogError as error:
            for turn in turns:
                fail(turn, error)
