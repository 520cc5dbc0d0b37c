"""Fairness between environments: no environment keeps more than half of a resource while another one waits.

`FairQueue` orders waiting work, `LoopTurns` spreads the calls of a burst over the turns of the event loop, and `Shares`
limits memory and running calls, of which a request is refused and never queued. With one environment, the queue is
first in, first out, and the whole limit is available.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

WAITING_SECONDS = 2.0
"""How long an environment counts as waiting after a refusal; its callers retry after one second."""

CALLS_PER_TURN = 8
"""How many calls of an environment go on in one turn of the event loop."""

Item = TypeVar("Item", bound=Hashable)


class FairQueue(Generic[Item]):
    """A queue without repetitions. Environments take turns; the items of one environment keep their order."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[Item, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, environment: int) -> bool:
        return environment in self._waiting

    def add(self, environment: int, item: Item) -> None:
        """Add the item, unless it waits already."""
        its = self._waiting.get(environment)
        if its is None:
            self._waiting[environment] = {item: None}
        else:
            its[item] = None

    def pop(self) -> Item:
        """Return the first item of the environment whose turn it is."""
        environment, its = next(iter(self._waiting.items()))
        item = next(iter(its))
        del its[item]
        if not its:
            del self._waiting[environment]
        elif len(self._waiting) > 1:
            self._waiting[environment] = self._waiting.pop(environment)
        return item


class LoopTurns:
    """Lets only a few calls of an environment go on in each turn of the event loop.

    Thousands of calls that arrive together, or whose wait ends together, would otherwise run in one turn, and calls of
    other environments would wait for all of them.
    """

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}
        """The calls that went on in this turn, by environment."""
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._is_scheduled = False

    async def take(self, environment: int) -> None:
        """Return when a call of the environment may go on. Usually that is now."""
        begun = self._begun.get(environment, 0)
        loop = asyncio.get_running_loop()
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._next_turn)
        if begun < CALLS_PER_TURN and environment not in self._waiting:
            self._begun[environment] = begun + 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.add(environment, turn)
        await turn

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._begun.clear()
        released = 0
        while self._waiting and released < CALLS_PER_TURN:
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                released += 1
        if self._waiting:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)


class Shares:
    """The share of each environment in a limited resource."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._held: dict[int, int] = {}
        self._refused_at: dict[int, float] = {}
        """The times of the last refusals, by environment, for want of room."""

    def may_take(self, environment: int, size: int, free: int, limit: int) -> bool:
        """Return whether the environment may take that much, of which `free` is left of the limit."""
        if size > free:
            self._refused_at[environment] = self._now()
            return False
        held = self._held.get(environment, 0) + size
        if 2 * held <= limit:
            return True
        return not self._refused_at or not self._is_another_waiting(environment, held)

    def take(self, environment: int, size: int) -> None:
        if size:
            self._held[environment] = self._held.get(environment, 0) + size

    def give(self, environment: int, size: int) -> None:
        left = self._held.get(environment, 0) - size
        if left:
            self._held[environment] = left
        else:
            self._held.pop(environment, None)

    def _is_another_waiting(self, environment: int, held: int) -> bool:
        """Return whether an environment that holds less than `held` was refused a moment ago."""
        since = self._now() - WAITING_SECONDS
        self._refused_at = {each: at for each, at in self._refused_at.items() if at > since}
        return any(each != environment and self._held.get(each, 0) < held for each in self._refused_at)
