"""The desk of one group and topic: those who ask for messages stand in line, and are served as messages come.

First ask, first served; but a member comes first where the partition is its own. A partition is tried only when there
may be something: it grew, a retry is due, a lease expired, a key became free. A repeated call is tried first where its
own lease is, or may be. Correctness is the ledgers' business: a desk that knows too little only hands out later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from lakelog.coordinator.leasing import Granted, Reply
from lakelog.engine.leasing.journal import Ledger
from lakelog.engine.leasing.matching import (
    Ask,
    Got,
    HandOut,
    Place,
    Room,
    Try,
    in_hand,
    may_get_suspect,
    refusal_of,
    repeats_at,
    stop_of_all,
    unknown,
)
from lakelog.errors import LakelogError, OutcomeUnknown
from lakelog.model.group import Group, Reading
from lakelog.model.message import partition_of_id
from lakelog.model.topic import Topic

LOOK_EVERY_SECONDS = 1.0
"""So often a desk with a line looks for what other processes did, in case no announcement came."""
RENEW_EVERY_SECONDS = 5.0
"""So often it looks whether the group was altered, in case that announcement was lost."""
_LAST_TRY_SECONDS = 10.0


class Desk:
    """Hands out the messages of one topic to one group, in this process."""

    def __init__(self, room: Room, topic: Topic, renew: Callable[[Desk], Awaitable[object]]) -> None:
        """`renew` looks how the group is now, and calls `refresh`."""
        self._room = room
        self.topic = topic
        self._renew = renew
        self._known: tuple[int, int, int] | None = None
        self._places: list[Place] = []
        self._hot: dict[int, None] = {}
        self._urgent: dict[int, None] = {}
        """Hot partitions where a lease is over, or a retry is due."""
        self._members: dict[int, Ask] = {}
        """Who asked last for the member that a partition is assigned to."""
        self._line: dict[Ask, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._kicked = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.used_at = time.monotonic()

    def refresh(self, group: Group, reading: Reading, topic: Topic) -> None:
        """The group, reading and topic as they are now; new partitions are watched from here on."""
        known = (group.version, reading.epoch, topic.partitions)
        if known == self._known:
            return
        self._known = known
        self.topic = topic
        for partition in range(topic.partitions):
            ledger = self._room.ledgers.ledger(group, reading, topic, partition)
            if partition == len(self._places):
                self._places.append(Place(ledger, self._room.shelf, self._room.clocks[ledger.cell]))
                self._room.waiters.watch(topic.pid(partition), self._grew)
            self._places[partition].ledger = ledger
            ledger.changed = self._changed
            self._heat(partition)

    @property
    def is_idle(self) -> bool:
        return not self._line and not self._tasks

    def close(self) -> None:
        for partition, place in enumerate(self._places):
            self._room.waiters.unwatch(self.topic.pid(partition), self._grew)
            place.ledger.changed = None
        for handle in (self._timer, self._looking):
            if handle is not None:
                handle.cancel()

    async def ask(self, ask: Ask, seconds: float) -> Got:
        """Messages, or nothing when the time has passed; refused if all of the ask's partitions are stopped."""
        got = await self._ask(ask, seconds)
        if not got and not ask.is_dismissed and (error := stop_of_all(self._places, ask)):
            raise error
        return got

    async def _ask(self, ask: Ask, seconds: float) -> Got:
        """Who does not wait gets what any server has taken in by now."""
        got = await self._stand_in_line(ask, seconds)
        if got or seconds > 0 or ask.is_dismissed or ask.answered:
            return got
        await self._look_for_growth()
        # Or somebody else looked a moment ago, and this one was not tried with what that one found.
        if not self._is_hot_for(ask):
            return got
        again = Ask(ask.take, asyncio.get_running_loop().create_future(), own=ask.own, strict=ask.strict)
        return await self._stand_in_line(again, 0.0)

    async def _stand_in_line(self, ask: Ask, seconds: float) -> Got:
        self.used_at = time.monotonic()
        self._members.update(dict.fromkeys(ask.own, ask))
        ask.is_last = seconds <= 0
        self._line[ask] = None
        if ask.is_repeat or any(place.has_lease_of(ask.take) for place in self._places):
            self._search(ask)
        if ask.answered:
            self._serve_with_answers(ask)
        else:
            self._kick()
        self._look_on()
        try:
            if seconds > 0:
                await asyncio.wait([ask.done], timeout=seconds)
                if not ask.done.done():
                    # What is being tried for it now may still come.
                    ask.is_last = True
                    self._kick()
            if not ask.done.done():
                await asyncio.wait([ask.done], timeout=_LAST_TRY_SECONDS)
            if ask.is_tried and not ask.done.done():
                raise OutcomeUnknown("PostgreSQL did not answer in time; what it leased comes with the repeat.")
            return ask.done.result() if ask.done.done() else []
        finally:
            self._line.pop(ask, None)
            if not ask.done.done():
                ask.done.cancel()

    def dismiss(self, ask: Ask) -> None:
        """Ends an ask with nothing: its member's assignment changed."""
        if not ask.done.done():
            ask.is_last = ask.is_dismissed = True
            if not ask.is_tried:
                ask.done.set_result([])

    # What happens -----------------------------------------------------------------------------------------------------

    def _grew(self, pid: int) -> None:
        self._heat(partition_of_id(pid))

    def _heat(self, partition: int) -> None:
        self._places[partition].marks += 1
        self._hot[partition] = None
        self._kick()

    def _heat_due(self, partition: int) -> None:
        self._urgent[partition] = None
        self._heat(partition)

    def _changed(self, ledger: Ledger) -> None:
        """A commit went in: keys may be free, a retry may be due earlier than anything else."""
        if (state := ledger.state) is None:
            # Dropped: it has to be read again.
            return self._heat(ledger.partition)
        place = self._places[ledger.partition]
        for ask in repeats_at(place, self._line):
            self._search(ask)
        in_ms = place.due_in_ms()
        if in_ms is not None and in_ms <= 0:
            self._heat_due(ledger.partition)
            return
        if state.has_ready() or self._room.shelf.backlog(ledger.pid, state.frontier):
            self._heat(ledger.partition)
        if in_ms is not None:
            self._arm(in_ms)

    def _search(self, ask: Ask) -> None:
        """Looks for the leases of a repeat in all partitions: with only some of them, the others would stay unknown."""
        ask.unsearched = dict.fromkeys(range(len(self._places)))
        self._kick()

    def _arm(self, in_ms: int) -> None:
        """Makes sure that somebody looks when that time has come."""
        at = time.monotonic() + in_ms / 1000 + 0.001
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(at - time.monotonic(), self._due)

    def _due(self) -> None:
        """Heats the partitions where a time has come, and waits for the next."""
        self._timer = None
        later: list[int] = []
        for partition, place in enumerate(self._places):
            in_ms = place.due_in_ms()
            if in_ms is None:
                continue
            if in_ms <= 0:
                self._heat_due(partition)
            else:
                later.append(in_ms)
        if later:
            self._arm(min(later))

    def _look_on(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        """While somebody waits: what did others do, and did the log grow, in case nobody said so?"""
        renewed = time.monotonic()
        while self._line:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            if not self._line:
                return
            stale = time.monotonic() - LOOK_EVERY_SECONDS
            if time.monotonic() > renewed + RENEW_EVERY_SECONDS:
                renewed = time.monotonic()
                with contextlib.suppress(LakelogError):
                    await self._renew(self)
            with contextlib.suppress(LakelogError):
                await self._room.ledgers.refresh([p.ledger for p in self._places if p.ledger.seen_at < stale])
            with contextlib.suppress(LakelogError):
                await self._look_for_growth()
            for partition, place in enumerate(self._places):
                if place.ledger.state is None:
                    self._heat(partition)
            self._due()
            # A cell may answer again.
            self._kick()

    async def _look_for_growth(self) -> None:
        """Where the log reaches further than this desk knew: the shelf may know it already, from another group."""
        refusal: LakelogError | None = None
        for cell, pids in self.topic.pids_by_cell().items():
            if self._room.ledgers.is_silent(cell):
                continue
            try:
                found = await self._room.shelf.ends(cell, pids)
            except LakelogError as error:
                # Others may answer.
                refusal = error
                continue
            for partition, ends in found.items():
                if partition < len(self._places) and ends != self._places[partition].ends:
                    self._places[partition].ends = ends
                    self._heat(partition)
        if refusal is not None:
            raise refusal

    # Serving ----------------------------------------------------------------------------------------------------------

    def _kick(self) -> None:
        if not self._kicked and self._line:
            self._kicked = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve_with_answers(self, ask: Ask) -> None:
        """At once: what is submitted in the same turn of the loop is decided together, answers first."""
        for partition in ask.answered:
            if partition not in self._hot and self._places[partition].may_be_freed():
                self._heat(partition)
        self._serve()

    def _serve(self) -> None:
        """Matches hot partitions with those in line; who waits no longer and has nothing to try gets nothing."""
        self._kicked = False
        for ask, shares in self._match().items():
            ask.is_tried = True
            cold = self._cold(ask, shares)
            trying = self._load_and_try(ask, cold, shares) if cold else self._try(ask, self._begin_all(ask, shares))
            task = asyncio.get_running_loop().create_task(trying)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for ask in self._line:
            if not ask.is_tried and not ask.done.done() and not self._is_hot_for(ask):
                ask.has_waited = True
                if ask.is_last:
                    ask.done.set_result([])

    def _match(self) -> dict[Ask, dict[int, int]]:
        """Who tries which partitions, and for how many messages."""
        line = [ask for ask in self._line if not ask.is_tried and not ask.done.done()]
        if not line:
            return {}
        # Repeats look for their leases: no other messages are taken for them until that is done.
        # A partition that is stopped is searched too: that needs its progress alone.
        searching = {ask: [p for p in ask.unsearched if not self._is_silent(p)] for ask in line if ask.unsearched}
        repeats = {ask: dict.fromkeys(partitions, 0) for ask, partitions in searching.items() if partitions}
        # First where an owner was lost: among many partitions, their turns would come too late for what it held.
        hot = [each for each in {**self._urgent, **self._hot} if self._is_open(each)]
        return repeats | HandOut(self._places, hot, self._members).match([ask for ask in line if ask not in repeats])

    def _is_hot_for(self, ask: Ask) -> bool:
        return any(ask.seen.get(partition) != self._places[partition].marks for partition in self._hot_for(ask))

    def _hot_for(self, ask: Ask) -> Iterator[int]:
        return (each for each in self._hot if (not ask.strict or each in ask.own) and self._is_open(each))

    def _is_open(self, partition: int) -> bool:
        """Whether its cell answers, and nothing failed there a moment ago: other partitions go on."""
        return not self._places[partition].ledger.is_stopped and not self._is_silent(partition)

    def _is_silent(self, partition: int) -> bool:
        return self._room.ledgers.is_silent(self._places[partition].ledger.cell)

    async def _load_and_try(self, ask: Ask, cold: Sequence[Ledger], shares: Mapping[int, int]) -> None:
        try:
            await self._room.ledgers.load(cold)
            # An owner may have been lost there: the ask is matched again, now that this is known.
            await self._try(ask, [])
        except LakelogError as error:
            known = {each: share for each, share in shares.items() if self._places[each].ledger.state is not None}
            await self._try(ask, self._begin_all(ask, known), error)

    async def _try(self, ask: Ask, tries: Sequence[Try], refusal: LakelogError | None = None) -> None:
        if tries:
            await asyncio.wait([each.reply for each in tries])
        ask.is_tried = False
        self._settle(ask, tries, refusal)
        self._kick()

    def _settle(self, ask: Ask, tries: Sequence[Try], refusal: BaseException | None) -> None:
        """Answers the ask if it got something, or was refused."""
        got: Got = []
        for each in tries:
            granted = self._end(ask, each)
            if granted is not None:
                got.append((each.place.ledger, granted))
        refusal = refusal_of(tries, refusal)
        # Without a try, progress was loaded: what stopped the partitions may have been left behind.
        if not got and refusal is None and tries and all(each.reply.exception() for each in tries):
            refusal = stop_of_all(self._places, ask)
        # Without a lease that may have been granted, the answer would keep it a secret: the repeat gets all of them.
        if got and not ask.done.done() and not isinstance(refusal, OutcomeUnknown):
            ask.done.set_result(got)
            got = []
        for ledger, granted in got:
            self._room.ledgers.release(ledger, ask.take.owner, granted)
        if refusal is not None and not ask.done.done():
            ask.done.set_exception(refusal)

    def _cold(self, ask: Ask, shares: Mapping[int, int]) -> list[Ledger]:
        """If it would try where nothing is known yet: all such places that it may try, up to a number."""
        if all(not share or self._places[each].ledger.state is not None for each, share in shares.items()):
            return []
        return unknown(self._places[each] for each in dict.fromkeys((*shares, *self._hot_for(ask))))

    def _begin_all(self, ask: Ask, shares: Mapping[int, int]) -> list[Try]:
        tries = (self._begin(ask, partition, share, alone=len(shares) == 1) for partition, share in shares.items())
        return [each for each in tries if each is not None]

    def _begin(self, ask: Ask, partition: int, share: int, *, alone: bool) -> Try | None:
        place = self._places[partition]
        hands, suspect = 0, False
        if share and not ask.take.isolates:
            hands, suspect = in_hand(self._places, ask.take.owner, partition)
        if suspect:
            ask.seen[partition] = place.marks
            return None
        if not alone:
            # What comes from here is in the owner's hands together with what comes from elsewhere.
            hands = max(hands, 1)
        place.wanted += share
        take = replace(ask.take, max_messages=share, hands=hands)
        return Try(place, partition, share, place.marks, alone, self._room.ledgers.submit(place.ledger, take))

    def _end(self, ask: Ask, tried: Try) -> Granted | None:
        place, partition = tried.place, tried.partition
        place.wanted -= tried.share
        ask.unsearched.pop(partition, None)
        if tried.reply.exception() is not None:
            return None
        reply = tried.reply.result()
        if tried.share:
            self._tried(ask, tried, reply)
        return reply if isinstance(reply, Granted) else None

    def _tried(self, ask: Ask, tried: Try, reply: Reply) -> None:
        partition = tried.partition
        self._urgent.pop(partition, None)
        if self._hot.pop(partition, 0) is None:
            # To the end: partitions take turns.
            self._hot[partition] = None
        if not isinstance(reply, Granted) and tried.place.marks == tried.marks:
            self._cool(ask, partition, alone=tried.alone)

    def _cool(self, ask: Ask, partition: int, *, alone: bool) -> None:
        """Nothing here, for anybody; or only a suspect, which somebody else may take, or this one when tried apart."""
        place = self._places[partition]
        if ask.take.isolates or not place.is_suspect_due():
            self._hot.pop(partition, None)
        elif alone or not may_get_suspect(self._places, ask, partition):
            ask.seen[partition] = place.marks
