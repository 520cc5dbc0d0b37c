"""The way into the event loop of an embedded engine, for asyncio and for threads.

For asyncio over PostgreSQL, the loop is the caller's. For threads, it is a thread of the client. Engines in memory
share one thread, so that all clients of a name meet in the same engine. A client does not survive a fork.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from lakelog.client import processes
from lakelog.client.embedding.engine import EmbeddedSettings
from lakelog.client.embedding.session import memory_engines
from lakelog.client.loops import LoopThread
from lakelog.errors import Closed, LakelogError, OutcomeUnknown, Unavailable

R = TypeVar("R")

_CLOSE_SECONDS = 30.0


class EngineHost:
    """The session of a client, and the thread of its engine. Both portals of a client share one."""

    def __init__(self, settings: EmbeddedSettings, project: str, environment: str, *, own_thread: bool) -> None:
        """With `own_thread`, an engine over PostgreSQL runs in a thread; otherwise, in the event loop of the caller."""
        self.session = memory_engines.session(settings, project, environment)
        self.owns_thread = own_thread and not settings.is_in_memory
        self.thread: LoopThread | None = None
        if settings.is_in_memory:
            self.thread = memory_engines.thread
        elif own_thread:
            self.thread = LoopThread("lakelog-engine")
        self.is_forked = False
        processes.after_fork(self)

    def reset_after_fork(self) -> None:
        """Refuse further calls: the engine stays with the parent."""
        self.is_forked = True
        processes.inherited.append((self.thread, self.session))

    def check(self) -> None:
        """Raise `Closed` in a child process."""
        if self.is_forked:
            raise Closed("This client was opened before a fork, and its engine stayed with the parent; connect again.")


class AsyncPortal:
    """Runs coroutines of the session for callers in an event loop."""

    def __init__(self, host: EngineHost) -> None:
        self.host = host

    async def run(
        self, verb: Callable[..., Coroutine[Any, Any, R]], seconds: float, *args: Any, writes: bool = True
    ) -> R:
        """Run the verb within this time, and return its result. `writes` tells which error to raise after a timeout."""
        self.host.check()
        try:
            async with asyncio.timeout(seconds):
                return await self.within(verb(*args))
        except TimeoutError as exc:
            raise _late(seconds, writes) from exc

    async def within(self, work: Coroutine[Any, Any, R]) -> R:
        """Run the coroutine in the engine's loop."""
        thread = self.host.thread
        return await (work if thread is None else asyncio.wrap_future(thread.submit(work)))

    async def close(self) -> None:
        """Close the engine, unless other clients share it."""
        if not self.host.is_forked:
            await self.within(self.host.session.close())


class Portal:
    """Runs coroutines of the session for callers in threads."""

    def __init__(self, host: EngineHost) -> None:
        self.host = host

    def run(self, verb: Callable[..., Coroutine[Any, Any, R]], seconds: float, *args: Any, writes: bool = True) -> R:
        """Run the verb within this time, and return its result. `writes` tells which error to raise after a timeout."""
        self.host.check()
        assert self.host.thread is not None
        future = self.host.thread.submit(verb(*args))
        try:
            return future.result(seconds)
        except TimeoutError as exc:
            if future.done():
                raise
            raise _late(seconds, writes) from exc
        finally:
            # Also when a signal interrupts the caller: the result is not used any more.
            future.cancel()

    def close(self) -> None:
        """Close the engine, unless other clients share it, and the thread of this client."""
        if not self.host.is_forked and self.host.thread is not None:
            self.host.thread.submit(self.host.session.close()).result(_CLOSE_SECONDS)
            if self.host.owns_thread:
                self.host.thread.stop()


def _late(seconds: float, writes: bool) -> LakelogError:
    detail = f"PostgreSQL did not answer within {seconds:.1f} s."
    return (OutcomeUnknown if writes else Unavailable)(detail, unreachable="database")
