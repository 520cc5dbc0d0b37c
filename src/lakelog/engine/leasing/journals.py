"""Journals: the progress of groups in partitions, as this process knows it. All changes of progress go through them.

The decision queue of a journal's cell queues, decides and writes operations. The cache may be out of date: a decision
counts only if its version follows the journal's last version when it is written, and a reply with nothing to write
counts only after the journal was read. Every operation can be decided again, so after a commit of unknown outcome, the
journal is read and its operations are decided again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

from lakelog.coordinator.leasing.operations import AcquireMessages, Granted, Operation, Reply
from lakelog.coordinator.leasing.state import DeliveryState
from lakelog.engine.clock import Clock
from lakelog.engine.groups.activity import GroupActivity
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.engine.leasing.cell_health import CellHealth
from lakelog.engine.leasing.dead_letter_builder import DeadLetterBuilder
from lakelog.engine.leasing.decider import Decider
from lakelog.engine.leasing.decision_queue import DecisionPipeline, DecisionQueue
from lakelog.engine.leasing.journal import Journal, take_pending
from lakelog.engine.leasing.journal_reader import GroupPartitions, JournalReader
from lakelog.engine.leasing.journal_writer import JournalWriter
from lakelog.engine.leasing.loader import Loader
from lakelog.engine.waiters import Waiters
from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable
from lakelog.model.group import Group, GroupTopic
from lakelog.model.topic import Topic
from lakelog.storage.store import PartitionStore

MAX_JOURNALS = 20_000

Found = TypeVar("Found")

_log = logging.getLogger(__name__)


class Journals:
    """All journals of this process."""

    def __init__(
        self,
        cells: Mapping[int, PartitionStore],
        batch_cache: BatchCache,
        clocks: Mapping[int, Clock],
        waiters: Waiters,
        activity: GroupActivity | None = None,
    ) -> None:
        """`activity` receives the leases that expired and the messages that became dead letters."""
        self._clocks = clocks
        self._waiters = waiters
        self._states = JournalReader(cells)
        self._cell_health = CellHealth(cells, self._cell_unresponsive)
        loader = Loader(cells, batch_cache, clocks)
        pipeline = DecisionPipeline(
            loader=loader,
            decider=Decider(batch_cache, clocks, random.Random(secrets.randbits(64)), self._nonces()),
            letters=DeadLetterBuilder(batch_cache),
            writer=JournalWriter(cells, clocks, loader, self._cell_health.heard, activity),
            cell_health=self._cell_health,
        )
        self._queues = {cell: DecisionQueue(cell, clocks[cell], pipeline) for cell in cells}
        self._journals: dict[tuple[int, int], Journal] = {}
        self._room = MAX_JOURNALS
        self._altered: dict[int, Group] = {}
        """Groups as they were last altered in this process. A caller may still hold an older value."""
        self._requests = count(1)
        self._name = secrets.token_hex(4)

    def _nonces(self) -> Iterator[int]:
        """Yield numbers below 2**63: each once, and other processes yield others."""
        yield from count(int(self._name, 16) << 31)

    def journal(self, group: Group, group_topic: GroupTopic, topic: Topic, partition: int) -> Journal:
        """Return the journal of the group and partition. A process has one for each pair."""
        place = (group.group_id, topic.pid(partition))
        journal = self._journals.get(place)
        if journal is None:
            self._make_room()
            journal = Journal(self._altered.get(group.group_id, group), group_topic, topic, partition, self._waiters)
            self._journals[place] = journal
        journal.topic = topic
        if group.version > journal.group.version:
            journal.group = group
        if group_topic.epoch >= journal.group_topic.epoch:
            journal.group_topic = group_topic
        return journal

    def altered(self, group: Group) -> None:
        """Use the altered group, even for consumers that already wait."""
        if group.version < self._altered.get(group.group_id, group).version:
            # Two callers altered it, and the later one was answered first.
            return
        self._altered[group.group_id] = group
        for (group_id, _), journal in self._journals.items():
            if group_id == group.group_id and group.version > journal.group.version:
                journal.group = group

    async def run(
        self, group: Group, group_topic: GroupTopic, topic: Topic, partition: int, operation: Operation
    ) -> Reply:
        """Decide the operation and commit it, together with other operations on the journal."""
        return await self.ask(self.journal(group, group_topic, topic, partition), operation)

    async def ask(self, journal: Journal, operation: Operation) -> Reply:
        """Submit for a caller that may give up. A lease that was granted to such a caller is released immediately."""
        done = self.submit(journal, operation)
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled() and done.exception() is None:
                reply = done.result()
                if isinstance(operation, AcquireMessages) and isinstance(reply, Granted):
                    self.release(journal, operation.owner, reply)
            raise

    def submit(self, journal: Journal, operation: Operation) -> asyncio.Future[Reply]:
        """Queue the operation. If the future is cancelled before the decision, the operation is dropped."""
        if isinstance(operation, AcquireMessages) and not operation.request:
            # A commit of unknown outcome is found again by its request.
            operation = replace(operation, request=f"{self._name}-{next(self._requests)}")
        if self.is_unresponsive(journal.cell):
            done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            done.set_exception(_silent())
            return done
        return self._queues[journal.cell].submit(journal, operation)

    async def states(
        self, group: Group, topic: Topic, group_topic: GroupTopic, partitions: Sequence[int]
    ) -> list[DeliveryState]:
        """Return the progress as the store has it now, in the order of `partitions`."""
        asked = GroupPartitions(group=group, topic=topic, group_topic=group_topic, partitions=partitions)
        return (await self.states_of([asked]))[0]

    async def states_of(self, asked: Sequence[GroupPartitions]) -> list[list[DeliveryState]]:
        """Return the progress of several groups or in several topics, with as few statements as for one."""
        return await self._states.read(asked)

    async def load(self, journals: Sequence[Journal]) -> None:
        """Read the journals that are neither loaded nor busy."""
        await self._read(journals, lambda journal: journal.state is None)

    async def refresh(self, journals: Sequence[Journal]) -> None:
        """Read the new rows of journals that are loaded and not busy."""
        await self._read(journals, lambda journal: journal.state is not None)

    async def awaiting(self, cell: int, call: Awaitable[Found]) -> Found:
        """Await a call to the cell. If it takes long, check whether the cell responds."""
        with self._cell_health.awaiting(cell):
            return await call

    async def read(self, journals: Sequence[Journal]) -> None:
        """Read the journals that are not busy: those without a state, and the new rows of the others."""
        await self._read(journals, lambda journal: True)

    async def drain(self) -> None:
        """Wait until no task is running."""
        while tasks := {task for queue in self._queues.values() for task in queue.tasks}:
            await asyncio.wait(tasks)
        self._cell_health.close()

    def drop(self, cell: int) -> None:
        """Forget the cell's journals. Decisions that are not being written yet are made again."""
        self._states.drop(cell)
        for journal in self._journals.values():
            if journal.cell == cell:
                journal.drop()

    def stop(self, journal: Journal, error: LakelogError) -> None:
        """Stop delivery of the partition to the group for a while."""
        journal.stopped(error, self._clocks[journal.cell])

    async def _read(self, journals: Sequence[Journal], is_meant: Callable[[Journal], bool]) -> None:
        """Read all cells, then raise the error of a cell that failed."""
        refusal: LakelogError | None = None
        for cell in {journal.cell: None for journal in journals}:
            # Checked here, because a decision may have begun while another cell was read.
            idle = [each for each in journals if each.cell == cell and is_meant(each) and not each.busy]
            if idle and self.is_unresponsive(cell):
                refusal = _silent()
            elif idle:
                try:
                    await self._queues[cell].load(idle)
                except LakelogError as error:
                    refusal = error
        if refusal is not None:
            raise refusal

    # Unresponsive cells and callers that gave up ---------------------------------------------------------------------

    def is_unresponsive(self, cell: int) -> bool:
        """Return whether the cell does not respond, so that operations on it are refused."""
        return cell in self._cell_health

    def _cell_unresponsive(self, cell: int) -> None:
        """Refuse the operations that wait for the cell.

        Running commits continue, and release leases whose callers are gone.
        """
        unknown = OutcomeUnknown.after(_silent())
        for commit in self._queues[cell].in_flight:
            for pending in commit.pending:
                pending.refuse(unknown)
        for journal in self._journals.values():
            if journal.cell == cell:
                for pending in (*take_pending(journal), *journal.awaiting_log):
                    pending.refuse(_silent())

    def release(self, journal: Journal, owner: str, granted: Granted) -> None:
        """Release a lease whose caller is gone."""
        self._queues[journal.cell].release(journal, owner, granted)

    def _make_room(self) -> None:
        if len(self._journals) < self._room:
            return
        idle = [place for place, each in self._journals.items() if _is_idle(each)]
        for place in idle[: MAX_JOURNALS // 10]:
            del self._journals[place]
        # Most journals may be in use: the next search waits until there are a tenth more.
        self._room = max(MAX_JOURNALS, len(self._journals) + MAX_JOURNALS // 10)


def _is_idle(journal: Journal) -> bool:
    return not (journal.busy or journal.pending or journal.awaiting_log or journal.waiters.is_watched(journal.key))


def _silent() -> Unavailable:
    return Unavailable("The database of this partition does not respond; try again.", unreachable="database")
