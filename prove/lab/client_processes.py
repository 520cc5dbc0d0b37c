"""The client processes of a run: started, stopped, killed, and replaced under a new name.

A process name is used once. `crashed` has the killed processes: only they may lack their end line.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from prove.lab.load.calls import TOKEN
from prove.lab.load.plan import ClientPlan
from prove.lab.shared_progress import ProgressField, SharedProgress
from tests.kit.process import Supervisor
from tests.kit.waiting import eventually


@dataclass(eq=False)
class ClientProcess:
    """One client process."""

    name: str
    role: str
    slot: int
    pid: int = 0
    code: int | None = None
    started: threading.Event = field(default_factory=threading.Event)

    @property
    def running(self) -> bool:
        return self.started.is_set() and self.code is None


MakePlan = Callable[[str, int, str], ClientPlan]
"""A function that returns a plan for a name, a slot, and the name of the killed process that is replaced, if any."""


class ClientProcesses:
    """Keeps client processes running, by role.

    `start_role("billing", "worker", 3, make_plan)` keeps three until `end_roles("billing")`.
    """

    def __init__(self, supervisor: Supervisor, folder: Path, ports: Sequence[int], *, path: str, token: str) -> None:
        """Create the processes. `path` is their import path, and `token` their access token."""
        self.folder = folder
        self.ports = list(ports)
        self._environment = {"PYTHONPATH": path, TOKEN: token}
        for name in ("history", "stop", "logs", "pending", "points"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.progress = SharedProgress(folder / "progress")
        self.processes: list[ClientProcess] = []
        self.broken: list[str] = []
        """The processes that failed: the name and the end of the log of each."""
        self._supervisor = supervisor
        self._roles: dict[str, tuple[str, MakePlan]] = {}
        self._guard = threading.RLock()
        self._closing = False

    def __enter__(self) -> ClientProcesses:
        path = str(self.folder / "fork-server")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        argv = [sys.executable, "-m", "prove.lab.load.fork_server", path]
        self._process = self._supervisor.start(argv, env=self._environment, name="fork-server")
        listener.settimeout(60)
        self._link, _ = listener.accept()
        self._link.settimeout(None)
        listener.close()
        self._thread = threading.Thread(target=self._listen, name="clients", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing = True
        self._process.kill9()
        self._link.close()

    # Roles ------------------------------------------------------------------------------------------------------------

    def start_role(self, role: str, module: str, count: int, make: MakePlan) -> list[ClientProcess]:
        """Start this many processes of a role. A killed process is replaced."""
        with self._guard:
            self._roles[role] = (module, make)
            return [self._start(role) for _ in range(count)]

    def end_roles(self, *roles: str, within: float = 20.0) -> None:
        """Tell the processes of these roles to end, and wait. Kill those that do not end in time."""
        for role in roles:
            with self._guard:
                self._roles.pop(role, None)
            (self.folder / "stop" / role).touch()
        late = time.monotonic() + within
        for client in [client for client in self.processes if client.role in roles]:
            while client.code is None and time.monotonic() < late:
                time.sleep(0.02)
            if client.code is None:
                self.kill9(client)

    def of(self, *roles: str) -> list[ClientProcess]:
        """Return the running processes of these roles."""
        with self._guard:
            return [client for client in self.processes if client.running and client.role in roles]

    def pick(self, chance: random.Random, *roles: str) -> ClientProcess:
        """Return a random running process of these roles; wait until there is one."""
        return chance.choice(eventually(lambda: self.of(*roles), within=10, what=f"a {' or '.join(roles)} that runs"))

    @property
    def crashed(self) -> list[str]:
        return [client.name for client in self.processes if client.code is not None and client.code != 0]

    # Faults -----------------------------------------------------------------------------------------------------------

    def busy(self, client: ClientProcess) -> int:
        return self.progress.get(client.slot, ProgressField.BUSY)

    def await_busy(self, client: ClientProcess, *, within: float) -> bool:
        """Wait until a call of the process is in progress or it holds messages."""
        until = time.monotonic() + within
        while client.running and time.monotonic() < until:
            if self.busy(client):
                return True
            time.sleep(0.001)
        return False

    def kill9(self, client: ClientProcess) -> None:
        self._signal(client, signal.SIGKILL)
        eventually(lambda: client.code is not None, within=10, what=f"{client.name} is gone")

    def stop(self, client: ClientProcess) -> None:
        self._signal(client, signal.SIGSTOP)

    def cont(self, client: ClientProcess) -> None:
        self._signal(client, signal.SIGCONT)

    def resume_all(self) -> None:
        for client in self.processes:
            if client.running:
                self.cont(client)

    def _signal(self, client: ClientProcess, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if client.code is None:
                os.kill(client.pid, number)

    # The fork server -------------------------------------------------------------------------------------------------

    def _start(self, role: str, after: str = "") -> ClientProcess:
        module, make = self._roles[role]
        number = len(self.processes)
        client = ClientProcess(name=f"{role}-{number}", role=role, slot=number)
        self.processes.append(client)
        plan = make(client.name, client.slot, after)
        order: dict[str, Any] = {"module": module, "plan": msgspec.to_builtins(plan)}
        self._link.sendall(msgspec.json.encode(order) + b"\n")
        return client

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._link.makefile("rb") as lines:
            for line in lines:
                self._on_event(msgspec.json.decode(line))
        if not self._closing:
            self.broken.append(f"the fork server ended: {self._process.log_text()[-3000:]}")

    def _on_event(self, fact: dict[str, Any]) -> None:
        with self._guard:
            name = fact.get("started") or fact.get("ended")
            client = next(client for client in reversed(self.processes) if client.name == name)
            if "started" in fact:
                client.pid = fact["pid"]
                client.started.set()
                return
            client.code = fact["code"]
            self.progress.put(client.slot, ProgressField.BUSY, 0)
            if client.code not in (0, -signal.SIGKILL):
                self.broken.append(f"{name}: {self._log_of(client)}")
            if client.role in self._roles and not self._closing:
                self._start(client.role, client.name)

    def _log_of(self, client: ClientProcess) -> str:
        path = self.folder / "logs" / f"{client.name}.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else "it has no log"
