"""The decision queue of one cell: operations on its ledgers are decided together, and written in shared commits.

Reading occupies no commit: journals are loaded, the log is read and the bytes of dead letters are fetched by tasks of
their own. What needs no reading is decided as soon as a commit is free, so that an ack does not wait for a take of the
same ledger whose messages have to come from the object store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from lakelog.coordinator.leasing import AcquireMessages, Granted, Operation, Reply, ReturnKind, ReturnMessages
from lakelog.engine.clock import Clock
from lakelog.engine.leasing.cell_health import Silences
from lakelog.engine.leasing.dead_letter_builder import Letters
from lakelog.engine.leasing.decider import Decider
from lakelog.engine.leasing.journal import Asked, Ledger, Turn, alive, fail, reply_to
from lakelog.engine.leasing.journal_writer import JournalWriter, Orphans, is_doubtful
from lakelog.engine.leasing.loader import Loader
from lakelog.engine.leasing.partition_stop import as_error
from lakelog.errors import LakelogError

COMMITS_IN_FLIGHT = 2
LOADS_IN_FLIGHT = 2
MAX_LEDGERS_PER_COMMIT = 128

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the queues of all cells share."""

    loader: Loader
    decider: Decider
    letters: Letters
    writer: JournalWriter
    silences: Silences


class DecisionQueue:
    """One per cell. A ledger is busy while its state is loaded, or a decision about it is being written."""

    def __init__(self, cell: int, clock: Clock, tools: Tools) -> None:
        self._cell = cell
        self._clock = clock
        self._tools = tools
        self._ready: dict[Ledger, None] = {}
        self._unloaded: dict[Ledger, None] = {}
        self._lettered: list[Turn] = []
        """Decided turns whose dead letters were read: they join the next commit."""
        self._commits = self._loads = 0
        self._is_pumping = False
        self.turns: dict[Turn, None] = {}
        """Decided, and not answered yet."""
        self.tasks: set[asyncio.Task[None]] = set()

    def submit(self, ledger: Ledger, operation: Operation) -> asyncio.Future[Reply]:
        """Queues the operation. If the future is cancelled before it is decided, it never is."""
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        ledger.asked.append(Asked(operation, done))
        self._wake(ledger)
        return done

    async def load(self, ledgers: Sequence[Ledger]) -> None:
        """Reads the journals of ledgers that are not busy. Operations on one that still has no state are refused."""
        for ledger in ledgers:
            ledger.busy = True
        failed: Mapping[Ledger, LakelogError] = {}
        try:
            with self._tools.silences.awaiting(self._cell):
                failed = await self._tools.loader.load(self._cell, ledgers)
        except Exception as error:
            failed = {each: as_error(error) for each in ledgers if each.state is None}
            raise
        finally:
            for ledger in ledgers:
                if ledger in failed:
                    fail(Turn(ledger, alive(ledger)), failed[ledger], self._clock)
                self._free(ledger)

    def release(self, ledger: Ledger, owner: str, granted: Granted) -> None:
        """Give back messages whose caller has gone."""
        ranges = [(offset, offset + 1) for offset in granted.offsets]
        back = ReturnMessages(owner=owner, token=granted.token, ranges=ranges, kind=ReturnKind.RELEASE, orphaned=True)
        self._start(self._quietly(ledger, back))

    async def _quietly(self, ledger: Ledger, operation: Operation) -> None:
        try:
            await self.submit(ledger, operation)
        except LakelogError as error:
            _log.debug("A lease could not be released and will expire: %s", error)

    # The pump ---------------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _wake(self, ledger: Ledger) -> None:
        if ledger.asked and not ledger.busy:
            self._ready[ledger] = None
            self._pump_soon()

    def _free(self, ledger: Ledger) -> None:
        pause = ledger.not_before - time.monotonic()
        if pause > 0:
            asyncio.get_running_loop().call_later(pause, self._free, ledger)
            return
        ledger.busy = False
        self._wake(ledger)

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        while self._commits < COMMITS_IN_FLIGHT and (self._ready or self._lettered):
            turns = self._decide_ready()
            if turns:
                self._commits += 1
                self._start(self._commit(turns))
        while self._loads < LOADS_IN_FLIGHT and self._unloaded:
            self._loads += 1
            self._start(self._load_next())

    def _decide_ready(self) -> list[Turn]:
        """Decides about ledgers in line, up to one commit; those that have to be read first leave the line."""
        turns, self._lettered = self._lettered[:MAX_LEDGERS_PER_COMMIT], self._lettered[MAX_LEDGERS_PER_COMMIT:]
        unread: dict[tuple[int, int], dict[Ledger, int]] = {}
        while self._ready and len(turns) < MAX_LEDGERS_PER_COMMIT:
            ledger = next(iter(self._ready))
            del self._ready[ledger]
            if ledger.busy:
                # It is back in line when it is free.
                continue
            if ledger.state is None:
                self._unloaded[ledger] = None
                continue
            if self._await_log(ledger):
                place = (ledger.group.group_id, ledger.topic.incarnation)
                unread.setdefault(place, {})[ledger] = ledger.frontier
            if turn := self._decided(ledger):
                turns.append(turn)
        for frontiers in unread.values():
            self._start(self._read_log(frontiers))
        return turns

    def _await_log(self, ledger: Ledger) -> bool:
        """Sets operations aside for which the log has to be read; whether that read has to begin."""
        is_reading = bool(ledger.awaiting_log)
        for asked in alive(ledger):
            try:
                waits = self._tools.loader.must_read(ledger, asked)
                (ledger.awaiting_log if waits else ledger.asked).append(asked)
            except Exception as error:
                asked.refuse(as_error(error))
        return not is_reading and bool(ledger.awaiting_log)

    def _decided(self, ledger: Ledger) -> Turn | None:
        """Return a turn that has to be written or checked; one that does not is answered."""
        turn = Turn(ledger, alive(ledger))
        if not turn.asked:
            return None
        try:
            self._tools.decider.decide(turn)
        except Exception as error:
            ledger.state = None
            fail(turn, as_error(error), self._clock)
        if turn.step is None or not turn.asked:
            return None
        if turn.entry is None and not is_doubtful(turn):
            reply_to(turn)
            return None
        ledger.busy = True
        self.turns[turn] = None
        if turn.entry is not None and turn.step.dead_messages:
            self._start(self._write_letters(turn))
            return None
        return turn

    # Reading ----------------------------------------------------------------------------------------------------------

    async def _load_next(self) -> None:
        chosen = list(islice(self._unloaded, MAX_LEDGERS_PER_COMMIT))
        for ledger in chosen:
            del self._unloaded[ledger]
        try:
            await self.load([each for each in chosen if not each.busy and each.state is None])
        except Exception as error:
            _log.debug("Journals could not be read: %s", error)
        finally:
            self._loads -= 1
            for ledger in chosen:
                self._wake(ledger)
            self._pump_soon()

    async def _read_log(self, frontiers: Mapping[Ledger, int]) -> None:
        """For ledgers of one group and topic."""
        with self._tools.silences.awaiting(self._cell):
            failed = await self._tools.loader.fill(frontiers)
        for ledger in frontiers:
            waiting, ledger.awaiting_log = ledger.awaiting_log, []
            if ledger in failed and not _has_moved(ledger, frontiers[ledger]):
                fail(Turn(ledger, waiting), failed[ledger], self._clock)
                if not ledger.busy:
                    # To be loaded again: another server may have moved the group past what cannot be read.
                    ledger.state = None
                continue
            for asked in waiting:
                asked.reads += 1
            ledger.asked.extendleft(reversed(waiting))
            self._wake(ledger)

    async def _write_letters(self, turn: Turn) -> None:
        assert turn.entry is not None and turn.step is not None
        ledger = turn.ledger
        try:
            with self._tools.silences.awaiting(self._cell):
                letters = await self._tools.letters.write(ledger.topic, ledger.partition, turn.step.dead_messages)
            turn.entry = replace(turn.entry, dead_letters=letters)
            self._lettered.append(turn)
            self._pump_soon()
        except Exception as error:
            fail(turn, as_error(error), self._clock)
            self._end([turn])

    # Writing ----------------------------------------------------------------------------------------------------------

    async def _commit(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            if turn.ledger.state is None:
                # Dropped since: decided again.
                turn.ledger.asked.extendleft(reversed(turn.asked))
                self._end([turn])
        turns = [turn for turn in turns if turn in self.turns]
        writing = [turn for turn in turns if turn.entry is not None]
        checking = [turn for turn in turns if turn.entry is None]
        try:
            # At once: neither waits for the other.
            await asyncio.gather(
                *(
                    self._answer(work(self._cell, share), share)
                    for work, share in ((self._tools.writer.write, writing), (self._tools.writer.check, checking))
                    if share
                )
            )
        finally:
            self._commits -= 1
            self._pump_soon()

    async def _answer(self, work: Coroutine[object, object, Orphans], turns: Sequence[Turn]) -> None:
        try:
            with self._tools.silences.awaiting(self._cell):
                orphans = await work
            for ledger, operation, reply in orphans:
                if isinstance(operation, AcquireMessages) and isinstance(reply, Granted):
                    self.release(ledger, operation.owner, reply)
        except Exception as error:
            for turn in turns:
                fail(turn, as_error(error), self._clock)
        finally:
            self._end(turns)

    def _end(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            self.turns.pop(turn, None)
            self._free(turn.ledger)


def _has_moved(ledger: Ledger, frontier: int) -> bool:
    """Return whether a skip or a seek moved the group while the log was read from the frontier on."""
    return ledger.state is not None and ledger.frontier != frontier
