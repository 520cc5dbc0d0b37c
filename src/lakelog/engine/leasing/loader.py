"""What decisions about ledgers need to read: journals, and the log where somebody wants messages of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from lakelog.coordinator.leasing import AcquireMessages, Operation
from lakelog.engine.clock import Clock
from lakelog.engine.groups.reasons import told
from lakelog.engine.leasing.batch_cache import Shelf
from lakelog.engine.leasing.journal import Asked, Ledger, replayed
from lakelog.engine.leasing.partition_stop import as_error
from lakelog.errors import LakelogError
from lakelog.model.group import GroupKind
from lakelog.storage.groups import JournalRead, JournalRequest
from lakelog.storage.store import PartitionStore

Errors = dict[Ledger, LakelogError]

_MAX_READS = 3
"""A read is repeated if its messages left the batch cache before they were decided about, but not endlessly."""


class Loader:
    """Of all cells; one per engine."""

    def __init__(self, cells: Mapping[int, PartitionStore], shelf: Shelf, clocks: Mapping[int, Clock]) -> None:
        self._cells = cells
        self._shelf = shelf
        self._clocks = clocks

    async def load(self, cell: int, ledgers: Sequence[Ledger]) -> Errors:
        """Reads journals: whole where there is no state, else on from it. Returns why, where one is not understood."""
        if not self._clocks[cell].known:
            self._clocks[cell].heard(int((await self._cells[cell].clock()).timestamp() * 1000))
        if not ledgers:
            return {}
        asks = [
            JournalRequest(group_id=each.group.group_id, pid=each.pid, after=each.version if each.state else 0)
            for each in ledgers
        ]
        drops = [ledger.drops for ledger in ledgers]
        reads = await self._cells[cell].groups.journals_read(asks)
        failed: Errors = {}
        for ledger, read, before in zip(ledgers, reads, drops, strict=True):
            if ledger.drops != before:
                continue
            self._clocks[cell].heard(read.clock_ms)
            ledger.seen_at = time.monotonic()
            try:
                _replay(ledger, read)
            except Exception as error:
                # Part of the rows was perhaps applied.
                ledger.state = None
                failed[ledger] = as_error(error)
        return failed

    def must_read(self, ledger: Ledger, asked: Asked) -> bool:
        """Whether the log has to be read before the operation is decided."""
        if ledger.group.kind is GroupKind.CURSOR:
            return not asked.reads
        if not _wants_messages(asked.operation) or asked.reads == _MAX_READS:
            return False
        return not self._shelf.is_ready(ledger.pid, ledger.frontier, is_checked=asked.reads > 0)

    async def fill(self, frontiers: Mapping[Ledger, int]) -> Errors:
        """Reads the log from the frontiers on, for ledgers of one group and topic. Returns why, where that failed."""
        # Some may have been asked before partitions were added.
        topic = max((ledger.topic for ledger in frontiers), key=lambda each: each.partitions)
        offsets = {ledger.partition: frontier for ledger, frontier in frontiers.items()}
        try:
            if next(iter(frontiers)).group.kind is GroupKind.CURSOR:
                await self._shelf.look(topic, list(offsets))
                return {}
            failed = await self._shelf.fill(topic, offsets)
            # Where retention took what was to come next, the decision will move to the log start.
            starts = {partition: self._shelf.row(topic.pid(partition)).log_start for partition in offsets}
            failed |= await self._shelf.fill(topic, {n: start for n, start in starts.items() if start > offsets[n]})
        except Exception as error:
            failed = dict.fromkeys(offsets, as_error(error))
        return {
            ledger: told(failed[ledger.partition], ledger.group, topic.name, ledger.partition)
            for ledger in frontiers
            if ledger.partition in failed
        }


def _replay(ledger: Ledger, read: JournalRead) -> None:
    state = ledger.state
    if state is None:
        state, ledger.since_snapshot = ledger.beginning(), 0
    elif not read.rows:
        return
    ledger.state, ledger.since_snapshot = replayed(state, read, ledger.since_snapshot)
    ledger.version = read.rows[-1].version if read.rows else 0
    if ledger.changed:
        # Another server granted what is open: the desk has to know when that lease ends.
        ledger.changed(ledger)


def _wants_messages(operation: Operation) -> bool:
    return isinstance(operation, AcquireMessages) and not operation.is_search
