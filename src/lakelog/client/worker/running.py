"""Runs the workers of the two clients: of the async client in the caller's event loop, of the sync client in its own.

The classes are an async and a sync form of the same interface, as in `lakelog.client._runtime`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from lakelog.client._async.transport import AsyncTransport
from lakelog.client._sync.transport import Transport
from lakelog.client.loops import LoopThread
from lakelog.client.worker.lease_extension import LeaseHolder
from lakelog.client.worker.lease_keeper import LeaseKeeper, ThreadLeaseKeeper
from lakelog.client.worker.pool import WorkerPool, WorkerSettings
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.lease import Answered, LeaseAnswer


class WorkerRunner:
    """Runs the worker pool in its own event loop: in the main thread for `run` (for signals), else in a thread."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._stop: Callable[[float], None] | None = None

    def run(self, seconds: float) -> None:
        if asyncio._get_running_loop() is not None:
            raise InvalidRequest(
                "log.run() blocks its thread, and this thread runs an event loop. Use `await log.run()` with a client "
                "of lakelog.connect_async(), or log.start(), which runs in its own thread."
            )
        asyncio.run(self._run(seconds))

    def start(self) -> None:
        thread = LoopThread("lakelog-workers")
        try:
            thread.submit(self._pool.start()).result()
        except BaseException:
            thread.stop()
            raise

        def stop(seconds: float) -> None:
            thread.submit(self._pool.stop(seconds)).result()
            thread.stop()

        self._stop = stop

    def stop(self, seconds: float) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop(seconds)

    async def _run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()

        def stop(seconds: float) -> None:
            asyncio.run_coroutine_threadsafe(self._pool.stop(seconds), loop).result()

        self._stop = stop
        try:
            await self._pool.run(seconds)
        finally:
            self._stop = None


def async_worker_runner(pool: WorkerPool) -> WorkerPool:
    """Return the pool itself, which runs in the caller's event loop."""
    return pool


def worker_runner(pool: WorkerPool) -> WorkerRunner:
    return WorkerRunner(pool)


def async_default_worker_settings(transport: AsyncTransport) -> WorkerSettings:
    """Return settings that use the client's own transport, and a thread that extends leases through the event loop."""
    return WorkerSettings(transport=lambda: transport, keeper=_loop_keeper, owns_transport=False)


def default_worker_settings(transport: Transport) -> WorkerSettings:
    def none() -> AsyncTransport:
        raise InvalidRequest("This client has no transport for workers. Create the client with `connect`.")

    return WorkerSettings(transport=none, keeper=_loop_keeper, owns_transport=False)


def _loop_keeper(transport: AsyncTransport) -> LeaseKeeper:
    loop = asyncio.get_running_loop()

    def send(source: LeaseHolder, answers: Sequence[LeaseAnswer], seconds: float) -> list[Answered | LakelogError]:
        call = transport.answer(source.request(answers), seconds)
        return asyncio.run_coroutine_threadsafe(call, loop).result()

    return ThreadLeaseKeeper(send)
