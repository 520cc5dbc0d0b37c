"""Several worker processes on one port: starts them, starts dead ones again, passes SIGTERM on, and takes them with it.

It holds the listening sockets, one per worker, so that connections which arrive while a worker is down wait for the
next. What a worker does is not its concern.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from types import FrameType

import structlog
from prometheus_client.multiprocess import mark_process_dead

from lakelog.server.metrics import MULTIPROCESS

EXIT_CONFIGURATION = 78
"""A worker that ends with this would fail again: the supervisor gives up."""
STEADY_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.5
LAST_PAUSE_SECONDS = 10.0

_PR_SET_PDEATHSIG = 1
_log = structlog.get_logger(__name__)

Work = Callable[[socket.socket], None]


def supervise(work: Work, sockets: Sequence[socket.socket], *, grace_seconds: float) -> int:
    """Runs one worker per socket until SIGTERM or SIGINT; returns the exit code. `work` is pickled."""
    with _metrics_folder(), _signals() as signalled:
        workers = [_Worker(number, work, listener) for number, listener in enumerate(sockets)]
        code = _watch(workers, signalled)
        for listener in sockets:
            listener.close()
        _end(workers, grace_seconds)
        return code


def _watch(workers: Sequence[_Worker], signalled: int) -> int:
    for worker in workers:
        worker.start()
    while True:
        now = time.monotonic()
        pauses = [worker.start_at - now for worker in workers if worker.process is None]
        ready = wait([signalled, *(w.process.sentinel for w in workers if w.process)], min(pauses, default=None))
        if signalled in ready:
            return 0
        for worker in workers:
            if worker.process is None and worker.start_at <= time.monotonic():
                worker.start()
            elif worker.has_ended(ready) and worker.ended() == EXIT_CONFIGURATION:
                return EXIT_CONFIGURATION


def _end(workers: Sequence[_Worker], grace_seconds: float) -> None:
    running = [worker.process for worker in workers if worker.process is not None]
    for process in running:
        process.terminate()
    until = time.monotonic() + grace_seconds
    for process in running:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            _log.error("worker did not end in time and is killed", pid=process.pid)
            process.kill()
            process.join()


class _Worker:
    """A place for one process, which is filled again when it ends."""

    def __init__(self, number: int, work: Work, listener: socket.socket) -> None:
        self.process: SpawnProcess | None = None
        self.start_at = 0.0
        self._number = number
        self._work = work
        self._listener = listener
        self._started_at = 0.0
        self._pause = 0.0

    def start(self) -> None:
        # Spawned, not forked: threads of Arrow and of the event loop do not survive a fork.
        context = multiprocessing.get_context("spawn")
        arguments = (self._work, self._listener, os.getpid())
        self.process = context.Process(target=_run, args=arguments, name=f"lakelog-worker-{self._number}")
        self._started_at = time.monotonic()
        self.process.start()
        _log.info("worker started", worker=self._number, pid=self.process.pid)

    def has_ended(self, ready: Sequence[object]) -> bool:
        return self.process is not None and self.process.sentinel in ready

    def ended(self) -> int | None:
        """Notes when to start the next one; the exit code of this one."""
        assert self.process is not None
        self.process.join()
        code = self.process.exitcode
        if self.process.pid is not None:
            mark_process_dead(self.process.pid)  # type: ignore[no-untyped-call]
        steady = time.monotonic() - self._started_at >= STEADY_SECONDS
        self._pause = 0.0 if steady else min(LAST_PAUSE_SECONDS, self._pause * 2 or FIRST_PAUSE_SECONDS)
        self.start_at = time.monotonic() + self._pause
        self.process = None
        _log.warning("worker ended", worker=self._number, code=code, starts_again_in_seconds=self._pause)
        return code


def _run(work: Work, listener: socket.socket, parent: int) -> None:
    _die_with(parent)
    work(listener)


def _die_with(parent: int) -> None:
    """Ends this process when its parent is gone, however that came: a worker nobody can stop would keep the port."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that can be read once SIGTERM or SIGINT came."""
    reader, writer = os.pipe()

    def handle(sig: int, frame: FrameType | None) -> None:
        os.write(writer, b"x")

    before = {sig: signal.signal(sig, handle) for sig in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield reader
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def _metrics_folder() -> Iterator[None]:
    """Where the workers' metrics meet, so that any of them can answer for all."""
    folder = tempfile.mkdtemp(prefix="lakelog-metrics-")
    os.environ[MULTIPROCESS] = folder
    try:
        yield
    finally:
        del os.environ[MULTIPROCESS]
        shutil.rmtree(folder, ignore_errors=True)
