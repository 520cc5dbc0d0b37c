"""Keeps the leases of a worker while its handlers run, from a second process or from a thread.

A handler may hold the interpreter's lock for longer than a lease, so that no thread of the worker runs. The second
process (`lakelog.client.worker.keeper_process`) still extends its leases. Both keepers have the same interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import select
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
"""How often the process is checked. Handlers start much more often than the process ends."""
_READY_SECONDS = 15.0


class LeaseKeeper(Protocol):
    """Extends leases. Changes take effect with `flush`, which is called before handlers start."""

    def begin(self) -> None:
        """Start the keeper, without waiting until it is ready."""
        ...

    async def ready(self) -> None:
        """Wait until the keeper can keep leases. Workers take no leases before that."""
        ...

    def keep(self, holder: LeaseHolder, partition: int, token: int, lease_seconds: float, until: float) -> int:
        """Keep a lease. Return its number."""
        ...

    def prolong(self, number: int, until: float) -> None: ...

    def drop(self, numbers: Iterable[int]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class WorkerResources:
    """The keeper of leases and the threads of handlers, which all subscriptions of a client share."""

    keeper: LeaseKeeper
    threads: HandlerThreads = field(default_factory=HandlerThreads)


class ProcessLeaseKeeper:
    """Keeps leases in a second process, and restarts the process if it ends."""

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
        """Wait for the process, which loads for half a second, and much longer on a busy machine."""
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
            if not _has_spoken(process):
                # It still loads, and would notice the end of its pipe late.
                process.kill()
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
        # The process finds the package where this process found it, and nothing in the current folder.
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
            # Half a line may have been written, and the process does not read: start another one.
            self._end(str(exc))

    def _end(self, why: str) -> None:
        processes.log.warning("Restarting the process that extends leases: %s.", why)
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close(process)


class ThreadLeaseKeeper:
    """Extends leases from a thread of this process: for an engine in this process, or if no process can be started."""

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
        """Do nothing: changes take effect immediately."""

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
        """Wait until an extension is due. Return whether to continue."""
        with self._changed:
            next_due = self._schedule.next_due()
            pause = 0.1 if next_due is None else min(0.1, next_due - time.monotonic())
            if not self._closed and pause > 0:
                self._changed.wait(pause)
            return not self._closed


def _inbox(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    return process.stdin.fileno()


def _has_spoken(process: subprocess.Popen[bytes]) -> bool:
    if process.stdout is None:
        return False
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    return bool(poll.poll(0))


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
