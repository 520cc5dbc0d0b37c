"""Ledgers: the progress of groups in partitions, as this process knows it, and the one way to change it.

Operations are queued, decided and written by the decision queue of the ledger's cell. The cache proves nothing: a
decision holds only if its version is still the journal's last when it is written, and an answer with nothing to write
only after the journal was looked at. Every operation can be decided again, so that a commit of unknown outcome is read
again and repeated.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from lakelog.coordinator.leasing import (
    AcquireMessages,
    DeliveryState,
    Granted,
    Operation,
    Reply,
)
from lakelog.engine.clock import Clock
from lakelog.engine.groups.activity import GroupActivity
from lakelog.engine.leasing.batch_cache import Shelf
from lakelog.engine.leasing.cell_health import Silences
from lakelog.engine.leasing.dead_letter_builder import Letters
from lakelog.engine.leasing.decider import Decider
from lakelog.engine.leasing.decision_queue import DecisionQueue, Tools
from lakelog.engine.leasing.journal import Ledger, alive
from lakelog.engine.leasing.journal_reader import States
from lakelog.engine.leasing.journal_writer import JournalWriter
from lakelog.engine.leasing.loader import Loader
from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable
from lakelog.model.group import Group, Reading
from lakelog.model.topic import Topic
from lakelog.storage.store import PartitionStore

KEEP_LEDGERS = 20_000

_log = logging.getLogger(__name__)


class Ledgers:
    """All ledgers of this process."""

    def __init__(
        self,
        cells: Mapping[int, PartitionStore],
        shelf: Shelf,
        clocks: Mapping[int, Clock],
        activity: GroupActivity | None = None,
    ) -> None:
        """`activity` receives the leases that expired and the messages that became dead letters."""
        self._clocks = clocks
        self._states = States(cells)
        self._silences = Silences(cells, self._fell_silent)
        loader = Loader(cells, shelf, clocks)
        tools = Tools(
            loader=loader,
            decider=Decider(shelf, clocks, random.Random(secrets.randbits(64))),
            letters=Letters(shelf),
            writer=JournalWriter(cells, clocks, loader, self._silences.heard, activity),
            silences=self._silences,
        )
        self._queues = {cell: DecisionQueue(cell, clocks[cell], tools) for cell in cells}
        self._ledgers: dict[tuple[int, int], Ledger] = {}
        self._altered: dict[int, Group] = {}
        """Groups as they were last altered in this process: whoever looked for one before may come later."""
        self._requests = count(1)
        self._name = secrets.token_hex(4)

    def ledger(self, group: Group, reading: Reading, topic: Topic, partition: int) -> Ledger:
        """The one ledger of that group and partition in this process."""
        place = (group.group_id, topic.pid(partition))
        ledger = self._ledgers.get(place)
        if ledger is None:
            self._make_room()
            ledger = Ledger(self._altered.get(group.group_id, group), reading, topic, partition)
            self._ledgers[place] = ledger
        ledger.topic = topic
        if group.version > ledger.group.version:
            ledger.group = group
        if reading.epoch >= ledger.reading.epoch:
            ledger.reading = reading
        return ledger

    def altered(self, group: Group) -> None:
        """Also for those who wait for messages by now."""
        if group.version < self._altered.get(group.group_id, group).version:
            # Two were at it, and the later one was answered first.
            return
        self._altered[group.group_id] = group
        for (group_id, _), ledger in self._ledgers.items():
            if group_id == group.group_id and group.version > ledger.group.version:
                ledger.group = group

    async def run(self, group: Group, reading: Reading, topic: Topic, partition: int, operation: Operation) -> Reply:
        """Decides the operation and commits it, with what others ask of this ledger meanwhile."""
        return await self.ask(self.ledger(group, reading, topic, partition), operation)

    async def ask(self, ledger: Ledger, operation: Operation) -> Reply:
        """As `submit`, for a caller who may give up: a lease that was granted to nobody goes back at once."""
        done = self.submit(ledger, operation)
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled() and done.exception() is None:
                reply = done.result()
                if isinstance(operation, AcquireMessages) and isinstance(reply, Granted):
                    self.release(ledger, operation.owner, reply)
            raise

    def submit(self, ledger: Ledger, operation: Operation) -> asyncio.Future[Reply]:
        """Puts the operation in line. If the future is cancelled before it is decided, it never is."""
        if isinstance(operation, AcquireMessages) and not operation.request:
            # So that a commit of unknown outcome can be found again.
            operation = replace(operation, request=f"{self._name}-{next(self._requests)}")
        if self.is_silent(ledger.cell):
            done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            done.set_exception(_silent())
            return done
        return self._queues[ledger.cell].submit(ledger, operation)

    async def states(
        self, group: Group, topic: Topic, reading: Reading, partitions: Sequence[int]
    ) -> list[DeliveryState]:
        """The progress as the store has it now, in that order."""
        return await self._states.read(group, topic, reading, partitions)

    async def load(self, ledgers: Sequence[Ledger]) -> None:
        """Reads what this process does not know yet, where nothing is on its way."""
        await self._read(ledgers, lambda ledger: ledger.state is None)

    async def refresh(self, ledgers: Sequence[Ledger]) -> None:
        """Reads on where others may have written: those that have a state and nothing on its way."""
        await self._read(ledgers, lambda ledger: ledger.state is not None)

    async def drain(self) -> None:
        """Waits until nothing is on its way."""
        while tasks := {task for queue in self._queues.values() for task in queue.tasks}:
            await asyncio.wait(tasks)
        self._silences.close()

    def drop(self, cell: int) -> None:
        """Forgets the cell's journals. Decisions that are not being written yet are made again."""
        self._states.drop(cell)
        for ledger in self._ledgers.values():
            if ledger.cell == cell:
                ledger.drop()

    def stop(self, ledger: Ledger, error: LakelogError) -> None:
        """Hands out nothing of that partition to that group for a while."""
        ledger.stopped(error, self._clocks[ledger.cell])

    async def _read(self, ledgers: Sequence[Ledger], is_meant: Callable[[Ledger], bool]) -> None:
        """Of all cells, before it says that one did not answer."""
        refusal: LakelogError | None = None
        for cell in {ledger.cell: None for ledger in ledgers}:
            # Looked at only now: a decision may have begun while another cell was read.
            idle = [each for each in ledgers if each.cell == cell and is_meant(each) and not each.busy]
            if idle and self.is_silent(cell):
                refusal = _silent()
            elif idle:
                try:
                    await self._queues[cell].load(idle)
                except LakelogError as error:
                    refusal = error
        if refusal is not None:
            raise refusal

    # Callers that gave up ---------------------------------------------------------------------------------------------

    def is_silent(self, cell: int) -> bool:
        """Whether the cell does not answer, and what is asked of it is refused."""
        return cell in self._silences

    def _fell_silent(self, cell: int) -> None:
        """Nobody waits any longer. What is being written goes on; who finds nobody there gives its leases back."""
        unknown = OutcomeUnknown.after(_silent())
        for turn in self._queues[cell].turns:
            for asked in turn.asked:
                asked.refuse(unknown)
        for ledger in self._ledgers.values():
            if ledger.cell == cell:
                for asked in (*alive(ledger), *ledger.awaiting_log):
                    asked.refuse(_silent())

    def release(self, ledger: Ledger, owner: str, granted: Granted) -> None:
        """Gives back what nobody will work on."""
        self._queues[ledger.cell].release(ledger, owner, granted)

    def _make_room(self) -> None:
        if len(self._ledgers) < KEEP_LEDGERS:
            return
        idle = [place for place, each in self._ledgers.items() if _is_idle(each)]
        for place in idle[: KEEP_LEDGERS // 10]:
            del self._ledgers[place]


def _is_idle(ledger: Ledger) -> bool:
    return not (ledger.busy or ledger.asked or ledger.awaiting_log or ledger.changed)


def _silent() -> Unavailable:
    return Unavailable("The database of this partition does not answer; try again.", unreachable="database")
