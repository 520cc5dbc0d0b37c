"""Threads for handlers that are plain functions.

Not those of `concurrent.futures`: these do not hold up the end of the process, and a handler that never returns costs
its own thread, not a place in the pool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

_Job = tuple[Future[Any], Callable[[], Any]]


class HandlerThreads:
    """A thread for each handler that runs; those that are idle are used again."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._closed = False

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._guard:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._run, args=[inbox], name="lakelog-handler", daemon=True).start()
        inbox.put((future, work))
        return future

    def close(self) -> None:
        """Idle threads end now, the others when their handler does."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _run(self, inbox: SimpleQueue[_Job | None]) -> None:
        while (job := inbox.get()) is not None:
            future, work = job
            result, error = None, None
            try:
                result = work()
            except BaseException as exc:
                error = exc
            with self._guard:
                closed = self._closed
                if not closed:
                    self._idle.append(inbox)
            # After the thread is idle again: whoever hears of it may want it at once.
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
            del job, work, result, error, future
            if closed:
                return
