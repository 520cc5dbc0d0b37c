"""Threads for handlers that are plain functions.

Unlike those of `concurrent.futures`, these threads do not delay the end of the process, and a handler that never
returns blocks only its own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

_Work = Callable[[], Any]
_Done = Callable[[Any, "BaseException | None"], None]


class ThreadFuture(asyncio.Future[Any]):
    """The future of a function that runs in a thread, for the event loop."""

    thread_id: int | None = None
    """Set when the function has started."""


class HandlerThreads:
    """Threads that take functions from one queue. No function waits for another one to end.

    Waking a thread costs more than a short function. Therefore only one thread is woken. Before it runs a function, it
    wakes the next thread if more functions wait. The first thread runs all short functions, and a long function delays
    no other.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._queue: deque[tuple[_Work, _Done]] = deque()
        self._idle = 0
        self._waking = False
        """True if a thread is about to check the queue."""
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._closed = False
        self._ends: deque[tuple[ThreadFuture, Any, BaseException | None]] = deque()

    def begin(self, work: _Work) -> ThreadFuture:
        """Start the function; the future belongs to the running event loop, and ends with the same error.

        `asyncio.wrap_future` replaces a TimeoutError by one without traceback, and never ends after a StopIteration.
        """
        loop = asyncio.get_running_loop()
        ended = ThreadFuture(loop=loop)

        def run() -> Any:
            ended.thread_id = threading.get_ident()
            return work()

        def done(result: Any, error: BaseException | None) -> None:
            with self._guard:
                self._ends.append((ended, result, error))
                first = len(self._ends) == 1
            if first:
                # A closed event loop has no use for the result.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._end)

        self._submit(run, done)
        return ended

    def submit(self, work: _Work) -> Future[Any]:
        """Start the function; the future is for callers without an event loop."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def done(result: Any, error: BaseException | None) -> None:
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self._submit(work, done)
        return future

    def close(self) -> None:
        """End idle threads now, and the others after their handlers."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._wakes.put(None)

    def _submit(self, work: _Work, done: _Done) -> None:
        job = (work, done)
        with self._guard:
            self._queue.append(job)
        try:
            self._wake_one()
        except RuntimeError:
            # No more threads can be started. A thread that has ended its function may have taken this one.
            with self._guard:
                if job not in self._queue:
                    return
                self._queue.remove(job)
            raise

    def _wake_one(self) -> None:
        """Wake one more thread, unless one is about to check the queue or the queue is empty."""
        with self._guard:
            if self._waking or not self._queue:
                return
            self._waking = True
            idle = self._idle > 0
            self._idle -= idle
        if idle:
            self._wakes.put(None)
            return
        try:
            threading.Thread(target=self._run, name="lakelog-handler", daemon=True).start()
        except RuntimeError:
            self._waking = False
            raise

    def _run(self) -> None:
        while True:
            with self._guard:
                self._waking = False
                job = self._queue.popleft() if self._queue else None
                if job is None:
                    if self._closed:
                        return
                    self._idle += 1
            if job is None:
                self._wakes.get()
                continue
            with contextlib.suppress(RuntimeError):
                self._wake_one()
            self._run_one(*job)
            del job

    def _run_one(self, work: _Work, done: _Done) -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as exc:
            error = exc
        # This thread looks at the queue next, so functions submitted by a callback need no other thread.
        self._waking = True
        done(result, error)
        del error

    def _end(self) -> None:
        """Resolve the futures of all functions that have ended. It runs in the event loop."""
        with self._guard:
            ends, self._ends = self._ends, deque()
        for ended, result, error in ends:
            if ended.done():
                continue
            if error is None:
                ended.set_result(result)
            elif isinstance(error, StopIteration):
                wrapped = RuntimeError("The handler raised StopIteration.").with_traceback(error.__traceback__)
                wrapped.__cause__ = error
                ended.set_exception(wrapped)
            else:
                ended.set_exception(error)
