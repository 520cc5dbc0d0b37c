"""Ledgers: the progress of groups in partitions, as this process knows it, and the one way to change it.

What is asked of one ledger while its commit is on its way is decided together in the next; ledgers of a cell share
commits. The cache proves nothing: a decision holds only if its version is still the journal's last when it is written,
and an answer with nothing to write only after the journal was looked at. Every operation can be decided again, so that
a commit of unknown outcome is read again and repeated.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice

from lakelog import failpoints
from lakelog.coordinator.leasing import (
    Death,
    GiveBack,
    Granted,
    Nothing,
    Operation,
    Reply,
    Return,
    State,
    Take,
)
from lakelog.engine.clock import Clock
from lakelog.engine.deciding import Decider
from lakelog.engine.ledger import Asked, Ledger, Turn, alive, fail, reply_to
from lakelog.engine.letters import Letters
from lakelog.engine.loading import Loader
from lakelog.engine.shelf import Shelf
from lakelog.engine.silence import Silences
from lakelog.engine.states import States
from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable
from lakelog.model.group import Group, Reading
from lakelog.model.topic import Topic
from lakelog.storage.groups import CommitStatus, Committed
from lakelog.storage.store import PartitionStore

COMMITS_IN_FLIGHT = 2
MAX_LEDGERS_PER_COMMIT = 128
KEEP_LEDGERS = 20_000
_TRIES = 40
_PAUSE_SECONDS = 0.002
"""After a conflict, on average and doubled up to sixteen times: two servers that decide in step would never agree."""
_TRUST_SECONDS = 1.0
"""So long after the journal was last seen, `Nothing` is answered from the cache."""

_log = logging.getLogger(__name__)

_Read = Callable[[int, list[Ledger]], Awaitable[object]]


class Ledgers:
    """All ledgers of this process."""

    def __init__(self, cells: Mapping[int, PartitionStore], shelf: Shelf, clocks: Mapping[int, Clock]) -> None:
        self._cells = cells
        self._shelf = shelf
        self._clocks = clocks
        self._loader = Loader(cells, shelf, clocks)
        self._letters = Letters(shelf)
        self._states = States(cells)
        self._ledgers: dict[tuple[int, int], Ledger] = {}
        self._altered: dict[int, Group] = {}
        """Groups as they were last altered in this process: whoever looked for one before may come later."""
        self._ready: dict[int, dict[Ledger, None]] = {cell: {} for cell in cells}
        self._running: dict[int, int] = dict.fromkeys(cells, 0)
        self._turns: dict[int, set[Turn]] = {cell: set() for cell in cells}
        """On their way."""
        self._silences = Silences(cells, self._fell_silent)
        self._pumping: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._random = random.Random(secrets.randbits(64))
        self._decider = Decider(shelf, clocks, self._random)
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
                self._give_back(ledger, operation, done.result())
            raise

    def submit(self, ledger: Ledger, operation: Operation) -> asyncio.Future[Reply]:
        """Puts the operation in line. If the future is cancelled before it is decided, it never is."""
        if isinstance(operation, Take) and not operation.request:
            # So that a commit of unknown outcome can be found again.
            operation = replace(operation, request=f"{self._name}-{next(self._requests)}")
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self.is_silent(ledger.cell):
            done.set_exception(_silent())
            return done
        ledger.asked.append(Asked(operation, done))
        self._ready[ledger.cell][ledger] = None
        self._pump_soon(ledger.cell)
        return done

    async def states(self, group: Group, topic: Topic, reading: Reading, partitions: Sequence[int]) -> list[State]:
        """The progress as the store has it now, in that order."""
        return await self._states.read(group, topic, reading, partitions)

    async def load(self, ledgers: Sequence[Ledger]) -> None:
        """Reads what this process does not know yet, where nothing is on its way."""
        await self._read(self._loader.load, ledgers, lambda ledger: ledger.state is None)

    async def refresh(self, ledgers: Sequence[Ledger]) -> None:
        """Reads on where others may have written: those that have a state and nothing on its way."""
        await self._read(self._loader.catch_up, ledgers, lambda ledger: ledger.state is not None)

    async def drain(self) -> None:
        """Waits until nothing is on its way."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        self._silences.close()

    # The pump ---------------------------------------------------------------------------------------------------------

    def _pump_soon(self, cell: int) -> None:
        if cell not in self._pumping:
            self._pumping.add(cell)
            asyncio.get_running_loop().call_soon(self._pump, cell)

    def _pump(self, cell: int) -> None:
        self._pumping.discard(cell)
        ready = self._ready[cell]
        while ready and self._running[cell] < COMMITS_IN_FLIGHT:
            chosen = [ledger for ledger in islice(ready, MAX_LEDGERS_PER_COMMIT * 4) if not ledger.busy]
            chosen = chosen[:MAX_LEDGERS_PER_COMMIT]
            if not chosen:
                return
            for ledger in chosen:
                del ready[ledger]
                ledger.busy = True
            self._running[cell] += 1
            task = asyncio.get_running_loop().create_task(self._round(cell, chosen))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _round(self, cell: int, ledgers: list[Ledger]) -> None:
        turns = [Turn(ledger, alive(ledger)) for ledger in ledgers]
        self._turns[cell].update(turns)
        try:
            with self._silences.awaiting(cell):
                await self._decide_and_commit(cell, [turn for turn in turns if turn.asked])
        except LakelogError as error:
            for turn in turns:
                fail(turn, error)
        except Exception as error:
            _log.exception("a commit of leases failed")
            for turn in turns:
                fail(turn, LakelogError(f"The decision failed: {error!r}."))
        finally:
            self._running[cell] -= 1
            self._turns[cell].difference_update(turns)
            for ledger in ledgers:
                self._free(ledger)
            self._pump_soon(cell)

    def _free(self, ledger: Ledger) -> None:
        pause = ledger.not_before - time.monotonic()
        if pause > 0:
            asyncio.get_running_loop().call_later(pause, self._free, ledger)
            return
        ledger.busy = False
        if ledger.asked:
            self._ready[ledger.cell][ledger] = None
            self._pump_soon(ledger.cell)

    async def _decide_and_commit(self, cell: int, turns: list[Turn]) -> None:
        await self._loader.load(cell, [turn.ledger for turn in turns if turn.ledger.state is None])
        await self._loader.fill(turns)
        for turn in turns:
            if turn.asked:
                self._decider.decide(turn)
        await asyncio.gather(*(self._write_letters(turn) for turn in turns if turn.step and turn.step.deaths))
        writing = [turn for turn in turns if turn.entry is not None]
        doubtful = [turn for turn in turns if turn.entry is None and turn.asked and self._is_doubtful(turn)]
        if doubtful:
            await self._check(cell, doubtful)
        if writing:
            await self._commit(cell, writing)
        for turn in turns:
            if turn.asked and turn.entry is None and turn not in doubtful:
                reply_to(turn)

    # Reading ----------------------------------------------------------------------------------------------------------

    async def _read(self, read: _Read, ledgers: Sequence[Ledger], is_meant: Callable[[Ledger], bool]) -> None:
        """Of all cells, before it says that one did not answer."""
        refusal: LakelogError | None = None
        for cell in {ledger.cell: None for ledger in ledgers}:
            # Looked at only now: while another cell was read, somebody may have begun.
            idle = [each for each in ledgers if each.cell == cell and is_meant(each) and not each.busy]
            if not idle:
                continue
            if self.is_silent(cell):
                refusal = _silent()
                continue
            for ledger in idle:
                ledger.busy = True
            try:
                with self._silences.awaiting(cell):
                    await read(cell, idle)
            except LakelogError as error:
                refusal = error
            finally:
                for ledger in idle:
                    self._free(ledger)
        if refusal is not None:
            raise refusal

    async def _write_letters(self, turn: Turn) -> None:
        assert turn.entry is not None and turn.step is not None
        ledger = turn.ledger
        deaths: Sequence[Death] = turn.step.deaths
        letters = await self._letters.write(ledger.topic, ledger.partition, deaths)
        turn.entry = replace(turn.entry, dead_letters=letters)

    # Writing ----------------------------------------------------------------------------------------------------------

    async def _commit(self, cell: int, turns: list[Turn]) -> None:
        entries = [turn.entry for turn in turns if turn.entry is not None]
        try:
            if failpoints.armed:
                failpoints.hit("leases.before_commit")
            answers = await self._cells[cell].groups.journals_commit(entries)
            self._silences.heard(cell)
            if failpoints.armed:
                failpoints.hit("leases.after_commit")
        except (OutcomeUnknown, Unavailable) as error:
            for turn in turns:
                self._again(turn, error)
            return
        except BaseException:
            for turn in turns:
                turn.ledger.state = None
            raise
        for turn, answer in zip(turns, answers, strict=True):
            self._written(cell, turn, answer)

    def _written(self, cell: int, turn: Turn, answer: Committed) -> None:
        clock = self._clocks[cell]
        if answer.status is CommitStatus.TIME:
            clock.corrected(answer.clock_ms)
        else:
            clock.heard(answer.clock_ms)
        if answer.status is not CommitStatus.OK:
            self._again(turn, Unavailable("Too many servers change the group's progress at once; try again."))
            return
        ledger, entry = turn.ledger, turn.entry
        assert entry is not None
        ledger.version = entry.version
        ledger.since_snapshot = 0 if entry.snapshot else ledger.since_snapshot + 1
        ledger.seen_at = time.monotonic()
        orphans = reply_to(turn)
        if ledger.changed:
            ledger.changed(ledger)
        for operation, reply in orphans:
            self._give_back(ledger, operation, reply)

    def _again(self, turn: Turn, error: LakelogError) -> None:
        """Decides anew, after reading the journal: the state has events that were perhaps not written."""
        ledger = turn.ledger
        ledger.state = None
        if isinstance(error, OutcomeUnknown) and turn.step is not None:
            for asked, reply in zip(turn.asked, turn.step.replies, strict=True):
                asked.lost(reply)
        kept = []
        for asked in turn.asked:
            asked.tries += 1
            if asked.tries < _TRIES:
                kept.append(asked)
            else:
                asked.refuse(error)
        ledger.asked.extendleft(reversed(kept))
        if kept:
            tries = min(max(asked.tries for asked in kept), 5)
            ledger.not_before = time.monotonic() + _PAUSE_SECONDS * 2**tries * self._random.random()

    def _is_doubtful(self, turn: Turn) -> bool:
        """Also of what is done already there is nothing to write, and so nobody who contradicts."""
        assert turn.step is not None
        stale = time.monotonic() - turn.ledger.seen_at > _TRUST_SECONDS
        return stale or any(not isinstance(reply, Nothing) for reply in turn.step.replies)

    async def _check(self, cell: int, turns: list[Turn]) -> None:
        """What the cache alone says proves nothing: looks at the journal first."""
        missed = await self._loader.catch_up(cell, [turn.ledger for turn in turns])
        for turn, has_missed in zip(turns, missed, strict=True):
            if has_missed:
                turn.ledger.asked.extendleft(reversed(turn.asked))
            else:
                reply_to(turn)

    # Callers that gave up ---------------------------------------------------------------------------------------------

    def is_silent(self, cell: int) -> bool:
        """Whether the cell does not answer, and what is asked of it is refused."""
        return cell in self._silences

    def _fell_silent(self, cell: int) -> None:
        """Nobody waits any longer. What is being written goes on; who finds nobody there gives its leases back."""
        unknown = OutcomeUnknown.after(_silent())
        for turn in self._turns[cell]:
            for asked in turn.asked:
                asked.refuse(unknown)
        for ledger in self._ledgers.values():
            if ledger.cell == cell:
                for asked in alive(ledger):
                    asked.refuse(_silent())

    def _give_back(self, ledger: Ledger, operation: Operation, reply: Reply) -> None:
        if isinstance(operation, Take) and isinstance(reply, Granted):
            self.release(ledger, operation.owner, reply)

    def release(self, ledger: Ledger, owner: str, granted: Granted) -> None:
        """Gives back what nobody will work on."""
        ranges = [(offset, offset + 1) for offset in granted.offsets]
        back = GiveBack(owner=owner, token=granted.token, ranges=ranges, kind=Return.UNCOUNTED, orphaned=True)
        task = asyncio.get_running_loop().create_task(self._quietly(ledger, back))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, ledger: Ledger, operation: Operation) -> None:
        try:
            await self.ask(ledger, operation)
        except LakelogError as error:
            _log.debug("a lease was not given back, and ends by itself: %s", error)

    def _make_room(self) -> None:
        if len(self._ledgers) < KEEP_LEDGERS:
            return
        idle = [place for place, each in self._ledgers.items() if not (each.busy or each.asked or each.changed)]
        for place in idle[: KEEP_LEDGERS // 10]:
            del self._ledgers[place]


def _silent() -> Unavailable:
    return Unavailable("The database of this partition does not answer; try again.")
