"""Real processes for tests: started, awaited, killed with SIGKILL, paused, restarted, each with a log file.

A signal that must reach all processes goes to the whole process tree. This module does not know what the processes do.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import psutil

from tests.kit import watchdog
from tests.kit.waiting import NeverTrue, eventually

Ready = Callable[[], bool] | str

# A proxy named in the environment must not be used between a test and its own server.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NotReady(AssertionError):
    """The process ended, or did not become ready in time."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command to run. `ready` is a function, an http URL that must return 200, or tcp://host:port."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    ready: Ready | None = None
    user: str | None = None
    cwd: Path | None = None


class Process:
    """One command that can be started repeatedly, with the same log file."""

    def __init__(self, command: Command, *, log_path: Path) -> None:
        self.command = command
        self.log_path = log_path
        self._popen: subprocess.Popen[bytes] | None = None
        self._orphans: list[psutil.Process] | None = None

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def running(self) -> bool:
        return self._popen is not None and self.returncode is None

    @property
    def returncode(self) -> int | None:
        popen = self._started()
        code = popen.poll()
        if code is not None and self._orphans is None:
            # Its id is free from here on and may be reused soon: find its remaining children now.
            self._orphans = _group_members(popen.pid)
            watchdog.forget_process(popen.pid)
        return code

    def start(self, *, within: float = 60.0) -> Process:
        if self.running:
            raise RuntimeError(f"already running as {self.pid}; end it first, or call restart")
        command = self.command
        self._orphans = None
        with self.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                list(command.argv),
                env={**os.environ, **command.env},
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=command.user,
                group=_group(command.user),
                extra_groups=[] if command.user else None,
            )
        watchdog.watch_process(self._popen.pid)
        if command.ready is not None:
            self._await_ready(command.ready, within)
        return self

    def wait(self, *, timeout: float = 30.0) -> int:
        """Wait for the process to end by itself. Raise TimeoutError if it does not."""
        what = f"{self.command.argv[0]} has ended"
        try:
            eventually(lambda: self.returncode is not None, within=timeout, every=0.005, what=what)
        except NeverTrue as exc:
            raise TimeoutError(f"{self.command.argv[0]} still runs after {timeout:g} s; {self._tail()}") from exc
        return self._started().returncode

    def terminate(self, *, within: float = 30.0) -> int:
        """Send SIGTERM to the process only, which has to end its children; return its exit code."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)
        return self.wait(timeout=within)

    def kill9(self) -> None:
        """Send SIGKILL to the whole tree, or to the remaining children of an ended process; return when all of it is
        gone.
        """
        if self._popen is None:
            return
        tree = watchdog.end_tree(self.pid) if self.running else []
        self.wait()
        for orphan in self._orphans or []:
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.kill()
            tree.append(orphan)
        eventually(lambda: all(_gone(member) for member in tree), within=30, what=f"{self.command.argv[0]} is gone")

    def stop(self) -> None:
        """Send SIGSTOP to the whole tree, to the process itself first, so that it starts no more children."""
        os.kill(self.pid, signal.SIGSTOP)
        for child in self.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.suspend()

    def cont(self) -> None:
        """Send SIGCONT to the whole tree."""
        for child in self.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.resume()
        os.kill(self.pid, signal.SIGCONT)

    def restart(self, *, within: float = 60.0) -> Process:
        """Kill the running processes and start again."""
        self.kill9()
        return self.start(within=within)

    def children(self) -> list[psutil.Process]:
        """Return all descendants, for tests that target one of them."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def rss(self) -> int:
        """Return the resident bytes of the process and its descendants."""
        total = 0
        for member in [psutil.Process(self.pid), *self.children()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += member.memory_info().rss
        return total

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _started(self) -> subprocess.Popen[bytes]:
        if self._popen is None:
            raise RuntimeError(f"{self.command.argv[0]} was not started; call start first")
        return self._popen

    def _await_ready(self, ready: Ready, within: float) -> None:
        probe = _probe(ready) if isinstance(ready, str) else ready
        try:
            eventually(lambda: self.returncode is not None or probe(), within=within, what="ready")
        except AssertionError as exc:
            self.kill9()
            raise NotReady(f"{self.command.argv[0]} not ready within {within:g} s; {self._tail()}") from exc
        if self.returncode is not None:
            raise NotReady(f"{self.command.argv[0]} ended with {self.wait()}; {self._tail()}")

    def _tail(self) -> str:
        lines = self.log_text().splitlines()[-30:]
        return f"end of {self.log_path}:\n" + "\n".join(lines)


class Supervisor:
    """Starts processes and ends all of them at exit: `with Supervisor() as supervisor: supervisor.start([...])`."""

    def __init__(self, folder: Path | None = None) -> None:
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="lakelog-logs-"))
        if self._own_folder:
            watchdog.watch_folder(str(self.folder))
        self.processes: list[Process] = []

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        ready: Ready | None = None,
        name: str = "process",
        within: float = 60.0,
    ) -> Process:
        log_path = self.folder / f"{name}-{len(self.processes)}.log"
        process = Process(Command(argv=argv, env=env or {}, ready=ready), log_path=log_path)
        self.processes.append(process)
        return process.start(within=within)

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill9()
        if self._own_folder:
            remove_folder(self.folder)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def remove_folder(folder: Path) -> None:
    """Remove a watched folder. Ignore files that disappear at the same time."""
    shutil.rmtree(folder, ignore_errors=True)
    watchdog.forget_folder(str(folder))


def _group_members(group: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group:
                members.append(process)
    return members


def _gone(process: psutil.Process) -> bool:
    try:
        # Process 1 reaps orphans, which can take some time: a zombie no longer runs.
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _group(user: str | None) -> int | None:
    return pwd.getpwnam(user).pw_gid if user else None


def _probe(url: str) -> Callable[[], bool]:
    parts = urlsplit(url)
    if parts.scheme == "tcp":
        return lambda: _accepts(parts.hostname or "127.0.0.1", parts.port or 0)
    return lambda: _answers(url)


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _answers(url: str) -> bool:
    try:
        with _direct.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as exc:
        # The error keeps the socket of the response open until it is closed.
        exc.close()
        return False
    except (OSError, http.client.HTTPException):
        return False
