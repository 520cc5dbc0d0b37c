"""Several worker processes on one port: the supervisor starts them, restarts workers that died, and forwards SIGTERM.

It holds the listening sockets, one per worker, so that connections that arrive while a worker is down wait for the next
one. It does not know what a worker does.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
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

from prometheus_client.multiprocess import mark_process_dead

from lakelog.reporting import counted, log_event
from lakelog.server.metrics import MULTIPROCESS

EXIT_CONFIGURATION = 78
"""Exit code of a worker that would fail again: the supervisor gives up."""
EXIT_UNAVAILABLE = 69
"""Exit code of a worker that could not reach its database; it is started again."""
STEADY_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.5
LAST_PAUSE_SECONDS = 10.0

_PR_SET_PDEATHSIG = 1
_log = logging.getLogger(__name__)

Work = Callable[[int, socket.socket], None]
"""The main function of a worker process, given its number and its listening socket."""


def supervise(work: Work, sockets: Sequence[socket.socket], *, grace_seconds: float, reloads: bool = False) -> int:
    """Run one worker per socket until SIGTERM or SIGINT, and return the exit code. `work` is pickled.

    With `reloads`, workers get SIGHUP, which they must unblock.
    """
    with _metrics_folder(), _signals(reloads=reloads) as signalled:
        workers = [_Worker(number, work, listener, reloads=reloads) for number, listener in enumerate(sockets)]
        code, ended_by = _watch(workers, signalled)
        if ended_by is not None:
            name = ended_by.name
            message = f"{name} received: stopping {counted(len(workers), 'worker')}, for at most {grace_seconds:g} s."
            log_event(_log, logging.INFO, "server_draining", message, signal=name, drain_seconds=grace_seconds)
        for listener in sockets:
            listener.close()
        _end(workers, grace_seconds)
        log_event(_log, logging.INFO, "server_stopped", "Server stopped.")
        return code


def _watch(workers: Sequence[_Worker], signalled: int) -> tuple[int, signal.Signals | None]:
    """Return the exit code, and the signal that ends the server."""
    for worker in workers:
        worker.start()
    while True:
        now = time.monotonic()
        pauses = [worker.start_at - now for worker in workers if worker.process is None]
        ready = wait([signalled, *(w.process.sentinel for w in workers if w.process)], min(pauses, default=None))
        if signalled in ready:
            sig = signal.Signals(os.read(signalled, 1)[0])
            if sig is not signal.SIGHUP:
                return 0, sig
            for worker in workers:
                worker.reload()
        for worker in workers:
            if worker.process is None and worker.start_at <= time.monotonic():
                worker.start()
            elif worker.has_ended(ready) and worker.ended() == EXIT_CONFIGURATION:
                return EXIT_CONFIGURATION, None


def _end(workers: Sequence[_Worker], grace_seconds: float) -> None:
    running = [worker.process for worker in workers if worker.process is not None]
    for process in running:
        process.terminate()
    until = time.monotonic() + grace_seconds
    for process in running:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            message = f"The worker with process id {process.pid} did not stop in time and is killed."
            log_event(_log, logging.ERROR, "worker_killed", message, pid=process.pid)
            process.kill()
            process.join()


class _Worker:
    """A slot for one process, which is started again when it ends."""

    def __init__(self, number: int, work: Work, listener: socket.socket, *, reloads: bool) -> None:
        self._reloads = reloads
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
        arguments = (self._work, self._number, self._listener, os.getpid())
        self.process = context.Process(target=_run, args=arguments, name=f"lakelog-worker-{self._number}")
        is_first = not self._started_at
        self._started_at = time.monotonic()
        # A new process inherits the blocked signal, and handles it when it can; by default the signal would end it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP} if self._reloads else ())
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        # The supervisor's first line already has the number of workers.
        log_event(
            _log,
            logging.DEBUG if is_first else logging.INFO,
            "worker_started",
            f"Worker {self._number} started with process id {self.process.pid}.",
            worker=self._number,
            pid=self.process.pid,
        )

    def reload(self) -> None:
        """Let the process load its certificate again."""
        if self.process is not None and self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGHUP)

    def has_ended(self, ready: Sequence[object]) -> bool:
        return self.process is not None and self.process.sentinel in ready

    def ended(self) -> int | None:
        """Schedule the next start, and return the exit code of the ended process."""
        assert self.process is not None
        self.process.join()
        code = self.process.exitcode
        if self.process.pid is not None:
            mark_process_dead(self.process.pid)  # type: ignore[no-untyped-call]
        steady = time.monotonic() - self._started_at >= STEADY_SECONDS
        self._pause = 0.0 if steady else min(LAST_PAUSE_SECONDS, self._pause * 2 or FIRST_PAUSE_SECONDS)
        self.start_at = time.monotonic() + self._pause
        self.process = None
        how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
        then = f" It is started again in {self._pause:g} s." if code != EXIT_CONFIGURATION else ""
        log_event(
            _log,
            logging.WARNING,
            "worker_ended",
            f"Worker {self._number} {how}.{then}",
            worker=self._number,
            exit_code=code,
            restart_seconds=self._pause,
        )
        return code


def _run(work: Work, number: int, listener: socket.socket, parent: int) -> None:
    _die_with(parent)
    work(number, listener)


def _die_with(parent: int) -> None:
    """End this process when its parent is gone: an orphaned worker would keep the port."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


@contextlib.contextmanager
def _signals(*, reloads: bool) -> Iterator[int]:
    """Return a descriptor that becomes readable at SIGTERM or SIGINT, and with `reloads` at SIGHUP."""
    reader, writer = os.pipe()

    def handle(sig: int, frame: FrameType | None) -> None:
        os.write(writer, bytes([sig]))

    handled = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if reloads else []))
    before = {sig: signal.signal(sig, handle) for sig in handled}
    try:
        yield reader
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def _metrics_folder() -> Iterator[None]:
    """Create the folder for the workers' metrics, so that any worker can respond for all."""
    folder = tempfile.mkdtemp(prefix="lakelog-metrics-")
    os.environ[MULTIPROCESS] = folder
    try:
        yield
    finally:
        del os.environ[MULTIPROCESS]
        shutil.rmtree(folder, ignore_errors=True)
