"""Runs the messages of leases: a key's one after another, others beside one another, a suspect alone in the process.

It decides what each message's answer is. Where leases come from, and when it is time to stop, is `worker`'s.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lakelog.client import processes
from lakelog.client.group_values import Answered, Verb
from lakelog.client.work.answers import Answerer
from lakelog.client.work.handlers import begin_hook, reason_of
from lakelog.client.work.held import Hand, Held
from lakelog.client.work.keeping import Keeper
from lakelog.client.work.options import Subscription
from lakelog.client.work.quarantine import quarantine
from lakelog.client.work.threads import HandlerThreads
from lakelog.errors import InvalidRequest, LakelogError, LeaseLost, NotOwner, OutOfOrder

log = processes.log
R = TypeVar("R")

_LOST = (LeaseLost, NotOwner, OutOfOrder)
_MOST_OVERRUN = 64
"""So many handlers may run on after their time, before no more are begun."""


@dataclass(slots=True)
class Counts:
    """What a subscription has done since it was started."""

    acked: int = 0
    skipped: int = 0
    """Acked without the handler, because the filter said so."""
    failed: int = 0
    timed_out: int = 0
    discarded: int = 0
    dead: int = 0
    lost: int = 0
    released: int = 0


@dataclass(slots=True)
class Tools:
    """What the subscriptions of a client share."""

    keeper: Keeper
    threads: HandlerThreads = field(default_factory=HandlerThreads)


class LeaseRunner:
    """One for each subscription that runs."""

    def __init__(self, subscription: Subscription, answerer: Answerer, tools: Tools) -> None:
        self.counts = Counts()
        self.stopping = False
        self.in_flight = 0
        self.hands: set[Hand] = set()
        self.freed = asyncio.Event()
        """Set when a message has been answered."""
        self._subscription = subscription
        self._options = subscription.options
        self._timeout = subscription.options.timeout_seconds
        self._answerer = answerer
        self._tools = tools
        self._slots = asyncio.Semaphore(self._options.concurrency)
        self._chains: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[Any]] = set()
        """Those of them that wait for their turn."""
        self._handlers: set[asyncio.Future[Any]] = set()
        self._overrun = 0

    @property
    def room(self) -> int:
        """How many more messages may be taken."""
        if self._overrun >= _MOST_OVERRUN:
            return 0
        return max(0, self._options.held - self.in_flight)

    def begin(self, hand: Hand, chains: Sequence[Sequence[Held]]) -> None:
        """Runs the chains beside one another, and the messages of each one after another."""
        self.hands.add(hand)
        for chain in chains:
            hand.open.update(held.message.offset for held in chain)
            self.in_flight += len(chain)
            task = asyncio.create_task(self._run_chain(hand, deque(chain)))
            self._chains.add(task)
            task.add_done_callback(self._chains.discard)

    async def drain(self, seconds: float) -> None:
        """Ends: what has not begun is given back, what runs may take so long, and is then given back too."""
        self.stopping = True
        for task in list(self._idle):
            task.cancel()
        if self._chains:
            await asyncio.wait(list(self._chains), timeout=seconds)
        for task in list(self._chains):
            task.cancel()
        if self._chains:
            await asyncio.wait(list(self._chains), timeout=2.0)
        for handler in list(self._handlers):
            handler.cancel()

    def prolonged(self, hand: Hand) -> None:
        """Tells the keeper how long the hand's leases may be kept: no longer than its handlers may take."""
        latest = time.monotonic() + self._timeout
        if not hand.stretched and latest - hand.until <= self._timeout / 10:
            return
        until = min(hand.deadlines.values(), default=latest)
        # Not for every message that takes its turn: the keeper would have more to do than the handlers.
        if abs(until - hand.until) > self._timeout / 10:
            hand.until = until
            self._tools.keeper.prolong(hand.kept, until)

    async def _run_chain(self, hand: Hand, chain: deque[Held]) -> None:
        held: Held | None = None
        try:
            while chain and not self.stopping and not hand.lost:
                if self._slots.locked():
                    await self._turn(self._slots.acquire())
                else:
                    await self._slots.acquire()
                try:
                    if self.stopping or hand.lost:
                        break
                    held = chain.popleft()
                    goes_on = await self._run_one(held)
                finally:
                    self._slots.release()
                self._free(hand, [held])
                if not goes_on and held.verb != "release":
                    # The server has taken back the later messages of the key.
                    self._free(hand, chain)
                    chain.clear()
                held = None
        finally:
            left = [held, *chain] if held is not None else [*chain]
            if left:
                self._give_back(hand, left)

    async def _turn(self, turn: Coroutine[Any, Any, R]) -> R:
        """Waits for it, unless the worker stops."""
        task = asyncio.current_task()
        assert task is not None
        self._idle.add(task)
        try:
            return await turn
        finally:
            self._idle.discard(task)

    def _give_back(self, hand: Hand, left: Sequence[Held]) -> None:
        """Not counted as failures: nobody has looked at them, or not to the end."""
        for held in left:
            if held.verb is None and not hand.lost:
                held.over = True
                self.counts.released += 1
                self._answerer.say(held.answer("release"))
        self._free(hand, left)

    def _free(self, hand: Hand, done: Sequence[Held] | deque[Held]) -> None:
        self.in_flight -= len(done)
        hand.open.difference_update(held.message.offset for held in done)
        if not hand.open and hand in self.hands:
            self.hands.discard(hand)
            self._tools.keeper.drop([hand.kept])
        self.freed.set()

    async def _run_one(self, held: Held) -> bool:
        """Whether the key's next message may run: this one was finished, and the server knows."""
        try:
            value = held.message.value
        except InvalidRequest as error:
            return await self._settle(held, "fail", error.detail, error)
        except Exception as error:
            return await self._settle(held, "fail", reason_of(error), error)
        try:
            wanted = self._options.filter(value) if callable(self._options.filter) else True
        except Exception as error:
            return await self._settle(held, "nack", reason_of(error), error)
        if not wanted:
            self.counts.skipped += 1
            return await self._settle(held, "ack", "", None)
        if held.hand.suspect:
            return await self._run_alone(held, value)
        if not quarantine.enter_now():
            await self._turn(quarantine.enter())
        return await self._run_handler(held, value, quarantine.leave)

    async def _run_alone(self, held: Held, value: object) -> bool:
        if not await self._turn(quarantine.enter_alone(self._timeout)):
            await self._settle(held, "release", "", None, delay_seconds=1.0)
            return False
        try:
            await self._answerer.say(held.prolonging(alone=True))
        except LakelogError as error:
            quarantine.leave_alone()
            self._refused(held, error)
            return False
        except BaseException:
            quarantine.leave_alone()
            raise
        return await self._run_handler(held, value, quarantine.leave_alone)

    async def _run_handler(self, held: Held, value: object, leave: Any) -> bool:
        hand, offset = held.hand, held.message.offset
        if self.stopping:
            leave()
            await self._settle(held, "release", "", None)
            return False
        hand.deadlines[offset] = time.monotonic() + self._timeout
        self.prolonged(hand)
        self._tools.keeper.flush()
        try:
            running = self._subscription.handler.begin(value, held, self._tools.threads)
        except BaseException:
            leave()
            raise
        self._handlers.add(running)
        running.add_done_callback(lambda done: self._ended(done, leave))
        try:
            in_time = await _ended_by(running, hand.deadlines, offset)
        except asyncio.CancelledError:
            # The worker stops, and has waited long enough.
            running.cancel()
            raise
        finally:
            del hand.deadlines[offset]
            self.prolonged(hand)
        if not in_time:
            return await self._timed_out(held, running)
        return await self._finished(held, running)

    def _ended(self, running: asyncio.Future[Any], leave: Any) -> None:
        self._handlers.discard(running)
        leave()
        if not running.cancelled():
            running.exception()

    async def _finished(self, held: Held, running: asyncio.Future[Any]) -> bool:
        error = asyncio.CancelledError() if running.cancelled() else running.exception()
        if held.verb is not None:
            # What the handler said itself stands, whatever became of it later.
            if error is not None:
                log.warning("%s failed after it had answered: %s", self._where(held), reason_of(error))
            return await self._settle(held, held.verb, held.reason, None)
        if error is not None:
            return await self._settle(held, "nack", reason_of(error), error)
        if self._options.ack == "manual":
            return await self._settle(held, "nack", "The handler returned without an answer.", None)
        return await self._settle(held, "ack", "", None)

    async def _timed_out(self, held: Held, running: asyncio.Future[Any]) -> bool:
        self.counts.timed_out += 1
        if held.verb is not None:
            running.cancel()
            return await self._settle(held, held.verb, held.reason, None)
        reason = f"timeout: the handler did not end within {self._timeout:g} s"
        is_async = self._subscription.handler.is_async
        log.warning("%s: %s%s", self._where(held), reason, "" if is_async else "; its thread runs on")
        if is_async:
            running.cancel()
        self._overrun += 1
        running.add_done_callback(self._returned)
        return await self._settle(held, "nack", reason, TimeoutError(reason))

    def _returned(self, running: asyncio.Future[Any]) -> None:
        self._overrun -= 1
        self.freed.set()

    async def _settle(
        self, held: Held, verb: Verb, reason: str, error: BaseException | None, delay_seconds: float | None = None
    ) -> bool:
        try:
            answered = await held.settle(verb, reason=reason, delay_seconds=delay_seconds)
        except LakelogError as refusal:
            held.over = True
            self._refused(held, refusal)
            return False
        held.over = True
        self._count(verb)
        if answered.dead or (verb == "ack" and self._options.on_ack is not None):
            await self._tell(held, verb, answered, error)
        return verb in ("ack", "discard") or bool(answered.dead)

    def _refused(self, held: Held, error: LakelogError) -> None:
        held.over = True
        if isinstance(error, _LOST):
            self.counts.lost += 1
            held.hand.lost = held.hand.lost or isinstance(error, LeaseLost)
        log.warning("%s: the answer %s was refused: %s", self._where(held), held.verb or "extend", error.detail)

    def _count(self, verb: Verb) -> None:
        name = {"ack": "acked", "discard": "discarded", "release": "released"}.get(verb, "failed")
        setattr(self.counts, name, getattr(self.counts, name) + 1)

    async def _tell(self, held: Held, verb: Verb, answered: Answered, error: BaseException | None) -> None:
        if verb == "ack" and self._options.on_ack is not None:
            await self._hook(self._options.on_ack, held)
        if answered.dead:
            self.counts.dead += 1
            # A warning only where nobody else is told.
            level = logging.WARNING if self._options.on_dead is None else logging.INFO
            what = "given up" if self._options.dead_letter is False else "dead letter"
            log.log(level, "%s: %s: %s", what, self._where(held), held.reason)
            if self._options.on_dead is not None:
                await self._hook(self._options.on_dead, held, error or LakelogError(held.reason))

    async def _hook(self, hook: Any, held: Held, *args: object) -> None:
        try:
            await begin_hook(hook, held, args, self._tools.threads)
        except Exception:
            log.exception("%s: a hook failed", self._where(held))

    def _where(self, held: Held) -> str:
        return f"{self._subscription.topic}, group {self._subscription.group}, message {held.message.id}"


async def _ended_by(running: asyncio.Future[Any], deadlines: dict[int, float], offset: int) -> bool:
    """Whether it ended in time; the handler may move its deadline meanwhile."""
    # Many end at their first step: a timer for each of those would cost more than they do.
    await asyncio.sleep(0)
    while not running.done():
        left = deadlines[offset] - time.monotonic()
        if left <= 0:
            return False
        await asyncio.wait([running], timeout=left)
    return True
