"""An event loop in virtual time: nothing waits, nothing runs in parallel, and the same seed runs the same way.

Each callback belongs to a node, which is one simulated process. A dead node never runs again, exactly as after a kill
-9: no `finally`, no `except`. A frozen node continues later, with an outdated time. Callbacks that are
ready at the same time run in order of arrival, as in asyncio, or in random order if the seed says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, cast

MOST_STEPS = 400_000
"""More callbacks than any run needs. A run that reaches this number does not terminate."""


SHUFFLED = 0.5
"""The share of callbacks that are postponed once more, if the order is random."""


class Stuck(Exception):
    """The error that nothing will ever happen again, or that the run does not terminate."""


class Node:
    """One simulated process: whether it runs, and its monotonic clock."""

    __slots__ = ("ahead", "context", "frozen_until", "held", "is_dead", "name", "rate")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.frozen_until = 0.0
        self.held: list[Handle] = []
        self.rate = 1.0
        self.ahead = 1000.0
        self.context = copy_context()
        self.context.run(NODE.set, self)

    def monotonic(self, now: float) -> float:
        return now * self.rate + self.ahead

    def drift(self, now: float, rate: float) -> None:
        """Let the clock of the node run faster or slower from now on. It never goes back."""
        self.ahead += now * (self.rate - rate)
        self.rate = rate


NODE: ContextVar[Node] = ContextVar("NODE")


class Handle(list[Any]):
    """A scheduled callback: callback, arguments, context, node, time.

    It is a list, because a run creates thousands of them, and a list is created and unpacked without a call.
    """

    __slots__ = ()

    def cancel(self) -> None:
        self[0], self[1] = None, ()

    def cancelled(self) -> bool:
        return self[0] is None

    def when(self) -> float:
        return float(self[4])


class VirtualLoop:
    """The part of an event loop that asyncio's tasks and futures need.

    `drawn` is a function that returns a number from 0 to 1, by which ready callbacks are ordered; None means order of
    arrival.
    """

    def __init__(self, drawn: Callable[[], float] | None) -> None:
        self._self = cast("asyncio.AbstractEventLoop", self)
        self.create_future: Callable[[], asyncio.Future[Any]] = partial(asyncio.Future, loop=self._self)
        self._drawn = drawn
        self.now = 0.0
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._count = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._is_over = False
        self.steps = 0
        self.world = Node("world")
        self.node = self.world
        """The node whose callback is running."""
        self.errors: list[BaseException] = []
        """Exceptions that callbacks raised."""

    # Time ---------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        """Return the running node's clock.

        It does not call the node's method, because it runs very often.
        """
        node = self.node
        return self.now * node.rate + node.ahead

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        context = context or copy_context()
        handle = Handle((callback, args, context, context[NODE], 0.0))
        if not self._is_over:
            self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        context = context or copy_context()
        handle = Handle((callback, args, context, context[NODE], when))
        self._count += 1
        if not self._is_over:
            heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        # Not by `call_at`, because a run does this hundreds of times.
        when = self.now + delay
        context = context or copy_context()
        handle = Handle((callback, args, context, context[NODE], when))
        self._count += 1
        if not self._is_over:
            heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    # Tasks --------------------------------------------------------------------------------------------------------

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self._self, name=name or "task", context=context)
        self._tasks.append(task)
        return task

    def begin(self, node: Node, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of that node."""
        return self.create_task(coro, context=node.context.copy())

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Run the function immediately, because there are no threads here."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    # Running ------------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        """Run the coroutine outside of any node, and return its result."""
        asyncio._set_running_loop(self._self)
        try:
            task = self.begin(self.world, future)
            while not task.done():
                self._turn(task)
                self.steps += 1000
                if self.steps > MOST_STEPS:
                    raise Stuck(f"did not end after {MOST_STEPS} callbacks, at {self.now:.3f} s")
            return task.result()
        finally:
            asyncio._set_running_loop(None)

    def _turn(self, task: asyncio.Task[Any]) -> None:
        """Run a thousand callbacks, or until the task is done.

        The code is optimised, because a run spends its time here.
        """
        ready, drawn = self._ready, self._drawn
        for _ in range(1000):
            if not ready:
                if task.done():
                    return
                self._advance()
            if drawn is None:
                handle = ready.popleft()
            else:
                # Some run later than they would: they go to the end.
                while drawn() < SHUFFLED and len(ready) > 1:
                    ready.rotate(-1)
                handle = ready.popleft()
            callback, args, context, node, _ = handle
            if callback is None or node.is_dead:
                continue
            if node.frozen_until > self.now:
                node.held.append(handle)
                continue
            self.node = node
            try:
                context.run(callback, *args)
            except Exception as error:
                self.errors.append(error)

    def _advance(self) -> None:
        """Advance the virtual time to the next scheduled callback."""
        timers = self._timers
        while timers and timers[0][2][0] is None:
            heapq.heappop(timers)
        if not timers:
            raise Stuck(f"all nodes wait forever, at {self.now:.3f} s")
        first = heapq.heappop(timers)
        if first[0] > self.now:
            self.now = first[0]
        self._ready.append(first[2])
        while timers and timers[0][0] <= self.now:
            self._ready.append(heapq.heappop(timers)[2])

    # Faults of nodes ------------------------------------------------------------------------------------------------

    def freeze(self, node: Node, seconds: float) -> None:
        node.frozen_until = self.now + seconds
        self.call_later(seconds, self._thaw, node, context=self.world.context)

    def _thaw(self, node: Node) -> None:
        held, node.held = node.held, []
        self._ready += held

    def close_unfinished(self) -> None:
        """Close the coroutines that never ended, without letting them do anything."""
        self._is_over = True
        asyncio._set_running_loop(self._self)
        try:
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    self.world.context.run(_close, task.get_coro())
                elif not task.cancelled():
                    task.exception()
        finally:
            asyncio._set_running_loop(None)
            self._tasks.clear()
            self._ready.clear()
            self._timers.clear()

    # Interface of asyncio ---------------------------------------------------------------------------------------------

    # Each new future asks for this. False needs no call.
    get_debug = staticmethod(bool)

    def is_running(self) -> bool:
        return not self._is_over

    def is_closed(self) -> bool:
        return self._is_over

    def close(self) -> None:
        self.close_unfinished()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore exceptions that were never retrieved: their waiters are dead."""


def driven(coro: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that only yields to its end, and return its result."""
    try:
        while True:
            coro.send(None)
    except StopIteration as end:
        return end.value


def _close(coro: Generator[Any, Any, Any] | Coroutine[Any, Any, Any] | None) -> None:
    if coro is not None:
        # Its cleanup does not matter: a killed process does nothing.
        with contextlib.suppress(Exception, asyncio.CancelledError):
            coro.close()
