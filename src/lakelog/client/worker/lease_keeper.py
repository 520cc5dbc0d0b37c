"""Keeps the leases of a worker while its handlers run: by a process beside it, or by a thread.

A handler may hold the interpreter's lock for longer than a lease, so that no thread of the worker gets to run. The
process beside it does. Who is told what is the same for both; `lakelog.client.worker.keeper_process` is the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import lakelog
from lakelog.client import processes
from lakelog.client.worker.lease_extension import ExtensionSchedule, KeptLease, LeaseHolder, SendExtensions, send_due
from lakelog.client.worker.threads import HandlerThreads

_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031
_RETRY_SECONDS = 1.0
_LOOK_SECONDS = 0.05
"""Handlers begin much more often than the process ends: it is looked after so often."""
_READY_SECONDS = 15.0


class LeaseKeeper(Protocol):
    """Takes effect with `flush`, which is called before handlers begin."""

    def begin(self) -> None:
        """Makes ready, beside the caller."""
        ...

    async def ready(self) -> None:
        """Returns when leases can be kept: none is taken before."""
        ...

    def keep(self, holder: LeaseHolder, partition: int, token: int, lease_seconds: float, until: float) -> int:
        """From now on; its number."""
        ...

    def prolong(self, number: int, until: float) -> None: ...

    def drop(self, numbers: Iterable[int]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class WorkerResources:
    """What the subscriptions of a client share: the keeper of their leases, and the threads of their handlers."""

    keeper: LeaseKeeper
    threads: HandlerThreads = field(default_factory=HandlerThreads)


class ProcessLeaseKeeper:
    """Tells a process of its own, which is started anew if it ends."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._numbers = itertools.count(1)
        self._kept: dict[int, list[Any]] = {}
        self._lines: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._start_after = 0.0
        self._look_after = 0.0

    def begin(self) -> None:
        if self._process is None:
            self._start()

    async def ready(self) -> None:
        """It takes half a second to load what it needs, and much longer on a busy machine."""
        process = self._process
        if process is None or process.stdout is None or process.stdout.closed:
            return
        loop = asyncio.get_running_loop()
        spoke = asyncio.Event()
        loop.add_reader(process.stdout, spoke.set)
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await spoke.wait()
        except TimeoutError:
            processes.log.warning("The process that extends leases is not ready after %g s.", _READY_SECONDS)
        finally:
            loop.remove_reader(process.stdout)

    def keep(self, holder: LeaseHolder, partition: int, token: int, lease_seconds: float, until: float) -> int:
        number = next(self._numbers)
        due = time.monotonic() + lease_seconds / 3
        line = [number, holder.topic, holder.group, holder.owner, partition, token, lease_seconds, until, due]
        self._kept[number] = line
        self._lines.append(json.dumps(line))
        return number

    def prolong(self, number: int, until: float) -> None:
        line = self._kept.get(number)
        if line is not None and line[7] != until:
            line[7] = until
            self._lines.append(json.dumps([number, until]))

    def drop(self, numbers: Iterable[int]) -> None:
        dropped = [number for number in numbers if self._kept.pop(number, None) is not None]
        self._lines += [f"[{number}]" for number in dropped]

    def flush(self) -> None:
        if not self._lines and time.monotonic() < self._look_after:
            return
        self._look_after = time.monotonic() + _LOOK_SECONDS
        if self._process is not None and self._process.poll() is not None:
            self._end(f"it ended with code {self._process.returncode}")
        if self._process is None:
            if self._kept:
                self._start()
        elif self._lines:
            self._write("\n".join([*self._lines, ""]))
        self._lines.clear()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _close(process)
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        if time.monotonic() < self._start_after:
            return
        self._start_after = time.monotonic() + _RETRY_SECONDS
        # It finds the package where this process found it, and nothing of the present folder.
        root = str(Path(lakelog.__file__).parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lakelog.client.worker.keeper_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            # A Ctrl-C is for the worker; this process ends when its pipe does.
            start_new_session=True,
        )
        pipe = _inbox(self._process)
        os.set_blocking(pipe, False)
        with contextlib.suppress(OSError):
            import fcntl

            fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_BYTES)
        first = json.dumps({**self._settings, "parent": os.getpid()})
        self._write("\n".join([first, *map(json.dumps, self._kept.values()), ""]))

    def _write(self, text: str) -> None:
        assert self._process is not None
        data = text.encode()
        try:
            while data:
                data = data[os.write(_inbox(self._process), data) :]
        except OSError as exc:
            # Half a line may have been written, and it is not being read: begin anew.
            self._end(str(exc))

    def _end(self, why: str) -> None:
        processes.log.warning("Restarting the process that extends leases: %s.", why)
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close(process)


class ThreadLeaseKeeper:
    """Extends from a thread of this process: where the engine is in this process too, or no other can be started."""

    def __init__(self, send: SendExtensions) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._schedule = ExtensionSchedule()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lakelog-keeper", daemon=True)
            self._thread.start()

    async def ready(self) -> None:
        pass

    def keep(self, holder: LeaseHolder, partition: int, token: int, lease_seconds: float, until: float) -> int:
        number = next(self._numbers)
        due = time.monotonic() + lease_seconds / 3
        with self._changed:
            self._schedule.keep(number, KeptLease(holder, partition, token, lease_seconds, until, due))
        return number

    def prolong(self, number: int, until: float) -> None:
        with self._changed:
            self._schedule.prolong(number, until)

    def drop(self, numbers: Iterable[int]) -> None:
        with self._changed:
            for number in numbers:
                self._schedule.drop(number)

    def flush(self) -> None:
        """There is nothing in between."""

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while self._waited():
            try:
                error: Exception | None = send_due(self._schedule, self._send, self._changed)
            except Exception as exc:
                error = exc
            if error is not None and not self._closed:
                processes.log.warning("Could not extend leases; retrying: %s", error)

    def _waited(self) -> bool:
        """Whether to go on."""
        with self._changed:
            next_due = self._schedule.next_due()
            pause = 0.1 if next_due is None else min(0.1, next_due - time.monotonic())
            if not self._closed and pause > 0:
                self._changed.wait(pause)
            return not self._closed


def _inbox(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    return process.stdin.fileno()


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
