"""Reads the data for decisions: journals, and the log for consumers that wait for messages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from lakelog.coordinator.leasing.operations import AcquireMessages, Operation, SeekPosition, SkipTo
from lakelog.engine.clock import Clock
from lakelog.engine.groups.reasons import told
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.engine.leasing.journal import Journal, PendingOperation, replay_rows
from lakelog.engine.leasing.partition_stop import as_error
from lakelog.errors import LakelogError, OffsetOutOfRange
from lakelog.model.group import GroupKind
from lakelog.model.topic import Topic
from lakelog.storage.groups import JournalRead, JournalRequest
from lakelog.storage.store import PartitionStore

Errors = dict[Journal, LakelogError]

_MAX_READS = 3
"""How often the log is read for one operation, because its messages may leave the batch cache before the decision."""
_NO_END = 1 << 62


class Loader:
    """Loads journals and the log from all cells; one per engine."""

    def __init__(
        self, cells: Mapping[int, PartitionStore], batch_cache: BatchCache, clocks: Mapping[int, Clock]
    ) -> None:
        self._cells = cells
        self._batch_cache = batch_cache
        self._clocks = clocks

    async def load(self, cell: int, journals: Sequence[Journal]) -> Errors:
        """Read journals, from their cached state on. Return the errors of journals that could not be read."""
        if not self._clocks[cell].known:
            self._clocks[cell].heard(int((await self._cells[cell].clock()).timestamp() * 1000))
        if not journals:
            return {}
        asks = [
            JournalRequest(group_id=each.group.group_id, pid=each.pid, after=each.version, after_nonce=each.nonce)
            if each.state
            else JournalRequest(group_id=each.group.group_id, pid=each.pid)
            for each in journals
        ]
        drops = [journal.drops for journal in journals]
        reads = await self._cells[cell].groups.journals_read(asks)
        failed: Errors = {}
        for journal, read, before in zip(journals, reads, drops, strict=True):
            if journal.drops != before:
                continue
            self._clocks[cell].heard(read.clock_ms)
            journal.seen_at = time.monotonic()
            try:
                if _replay(journal, read) and self._cells[cell].timeline > 1:
                    self._skip_lost_tokens(journal)
            except Exception as error:
                # Some of the rows may have been applied.
                journal.state = None
                failed[journal] = as_error(error)
        return failed

    def _skip_lost_tokens(self, journal: Journal) -> None:
        """Give out no token again that was given out on a lost timeline: its owner could answer for another message.

        All tokens are below the present time in microseconds; see `token_before`.
        """
        assert journal.state is not None
        journal.state.last_token = max(journal.state.last_token, self._clocks[journal.cell].now_ms() * 1000)

    def must_read(self, journal: Journal, pending: PendingOperation) -> bool:
        """Return whether the log must be read before the operation is decided."""
        if journal.group.kind is GroupKind.CURSOR:
            return not pending.reads
        if not _wants_messages(pending.operation):
            return False
        if self._may_be_beyond(journal, journal.frontier):
            return True
        wanted = journal.filter()
        if wanted is not None and not self._batch_cache.is_evaluated(
            journal.pid, journal.frontier, journal.group.name, wanted
        ):
            return True
        if pending.reads == _MAX_READS:
            return False
        return not self._batch_cache.is_ready(journal.pid, journal.frontier, is_checked=pending.reads > 0)

    async def fill(self, frontiers: Mapping[Journal, int]) -> Errors:
        """Read the log from the frontiers on, for journals of one group and topic. Return the errors."""
        # Some operations may be older than the last added partitions.
        topic = max((journal.topic for journal in frontiers), key=lambda each: each.partitions)
        offsets = {journal.partition: frontier for journal, frontier in frontiers.items()}
        doubtful = [journal for journal, frontier in frontiers.items() if self._may_be_beyond(journal, frontier)]
        failed: dict[int, LakelogError] = {}
        try:
            if next(iter(frontiers)).group.kind is GroupKind.CURSOR:
                await self._batch_cache.look(topic, list(offsets))
                doubtful = [journal for journal in doubtful if not _is_moved(journal)]
            else:
                failed |= await self._batch_cache.fill(topic, offsets)
                # If retention deleted the next messages, the decision will move to the log start.
                starts = {partition: self._batch_cache.row(topic.pid(partition)).log_start for partition in offsets}
                failed |= await self._batch_cache.fill(
                    topic, {n: start for n, start in starts.items() if start > offsets[n]}
                )
            if doubtful:
                failed |= await self._beyond(topic, {journal: frontiers[journal] for journal in doubtful})
        except Exception as error:
            failed = dict.fromkeys(offsets, as_error(error))
        return {
            journal: told(failed[journal.partition], journal.group, topic.name, journal.partition)
            for journal in frontiers
            if journal.partition in failed
        }

    def _may_be_beyond(self, journal: Journal, frontier: int) -> bool:
        """Return whether the position may be in messages that a failover lost.

        The journal is lost together with the messages, but the catalog remembers the start and the last seek.
        """
        timeline = self._cells[journal.cell].timeline
        if timeline <= 1:
            return False
        position = _position(journal, frontier)
        if position > self._batch_cache.row(journal.pid).high_watermark:
            return True
        is_from_before = journal.group_topic.is_from_before(journal.partition, position, timeline)
        return is_from_before and journal.confirmed != (timeline, position)

    async def _beyond(self, topic: Topic, frontiers: Mapping[Journal, int]) -> dict[int, LakelogError]:
        """Return an error by partition for groups beyond the end, also after the log has grown past their positions."""
        await self._batch_cache.look(topic, [journal.partition for journal in frontiers])
        ends = await self._ends_after(frontiers)
        failed: dict[int, LakelogError] = {}
        for journal, frontier in frontiers.items():
            position = _position(journal, frontier)
            end = self._batch_cache.row(journal.pid).high_watermark
            timeline = self._cells[journal.cell].timeline
            is_from_before = journal.group_topic.is_from_before(journal.partition, position, timeline)
            if position <= end and not (is_from_before and position > ends[journal]):
                journal.confirmed = (timeline, position)
            else:
                failed[journal.partition] = _lost(journal, position, end)
        return failed

    async def _ends_after(self, journals: Iterable[Journal]) -> dict[Journal, int]:
        """Return where the log of each journal ended at a failover after its position was decided."""
        by_cell: dict[int, list[Journal]] = {}
        for journal in journals:
            by_cell.setdefault(journal.cell, []).append(journal)
        found: dict[Journal, int] = {}
        for cell, mine in by_cell.items():
            asks = [(journal.pid, journal.group_topic.timeline(journal.partition)) for journal in mine]
            ends = await self._cells[cell].timelines.ends_after(asks)
            found |= {each: _NO_END if end is None else end for each, end in zip(mine, ends, strict=True)}
        return found

    async def evaluate(self, journals: Iterable[Journal]) -> Errors:
        """Evaluate expensive filters for the messages that were read, in slices. Return the errors."""
        failed: Errors = {}
        for journal in journals:
            wanted = journal.filter()
            if wanted is None or journal.state is None:
                continue
            try:
                await self._batch_cache.evaluate(journal.pid, journal.frontier, journal.group.name, wanted)
            except Exception as error:
                failed[journal] = told(as_error(error), journal.group, journal.topic.name, journal.partition)
        return failed


def _position(journal: Journal, frontier: int) -> int:
    """Return where the next decision begins: at the target of a seek that is not applied yet, or at the frontier."""
    target = None if journal.state is None else journal.pending_seek
    return frontier if target is None else target


def _lost(journal: Journal, position: int, end: int) -> OffsetOutOfRange:
    group, topic = journal.group.name, journal.topic.name
    return OffsetOutOfRange(
        f"Group '{group}' is at offset {position} of topic '{topic}', partition {journal.partition}, and a failover "
        f"lost messages before it. Move the group with `lakelog groups seek {group}`.",
        group=group,
        topic=topic,
        partition=journal.partition,
        offset=position,
        high_watermark=end,
    )


def _is_moved(journal: Journal) -> bool:
    """Return whether all operations that wait for the log move the group."""
    return all(isinstance(pending.operation, SeekPosition | SkipTo) for pending in journal.awaiting_log)


def _replay(journal: Journal, read: JournalRead) -> bool:
    """Apply the rows, and return whether the state was read as a whole."""
    state = journal.state
    is_whole = state is None
    if state is None:
        state, journal.since_snapshot = journal.beginning(), 0
    elif not read.rows:
        return False
    journal.state, journal.since_snapshot = replay_rows(state, read, journal.since_snapshot)
    journal.version, journal.nonce = (read.rows[-1].version, read.rows[-1].nonce) if read.rows else (0, 0)
    # Another server may have granted leases: the dispatcher must know when they end.
    journal.notify()
    return is_whole or read.rows[0].snapshot


def _wants_messages(operation: Operation) -> bool:
    return isinstance(operation, AcquireMessages) and not operation.is_search
