"""The steps of a rolling upgrade: migrate, replace the servers one at a time, go back, and replace them again.

The programs with the Python client start before the first step, and end after the last one.
"""

from __future__ import annotations

import http.client
import json
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lakelog.model.levels import SUPPORTED
from prove.lab.fault_runner import FaultRunner, InjectedFault
from prove.lab.load.calls import headers
from prove.lab.topology import LabServer, Topology
from prove.upgrade.library_client import TOPIC
from prove.upgrade.library_load import LibraryFigures, LibraryLoad
from prove.upgrade.release import CURRENT, Release
from tests.kit.ports import free_port
from tests.kit.waiting import eventually

RAISED_SECONDS = 120.0
REFUSAL = f"feature level {int(SUPPORTED)}"
KIND = "rolling restart"
"""The kind of fault that a replacement counts as."""


class UpgradeTopology(Topology):
    """A topology whose servers and commands run an older version at first."""

    def __init__(self, folder: Path, *, old: Release) -> None:
        super().__init__(folder)
        self.release = old

    @property
    def server_environment(self) -> dict[str, str]:
        return {**self.release.environment}

    def command(self, release: Release, *arguments: str) -> tuple[int, str]:
        """Run a command of a release on the databases, and return its status and output."""
        argv = release.argv(*arguments)
        env = {**self.database_environment, **release.environment}
        process = self.supervisor.start(argv, env=env, name=f"{arguments[0]}-{len(self.supervisor.processes)}")
        return process.wait(timeout=120), process.log_text()


@dataclass(frozen=True, kw_only=True)
class Step:
    """A finished step, with its duration."""

    about: str
    seconds: float


class UpgradeRunner(FaultRunner):
    """Runs the steps, `dwell` seconds apart. A step that fails ends the run."""

    topology: UpgradeTopology
    library: LibraryFigures | None = None

    def __init__(self, topology: UpgradeTopology, old: Release, dwell: float) -> None:
        super().__init__(topology, [])
        self.topology, self._old, self._dwell = topology, old, dwell
        self.steps: list[Step] = []

    def run(self) -> None:
        load = LibraryLoad(self.topology, self._old)
        try:
            load.start()
            for about, act in self._planned():
                if self._cut.wait(self._dwell):
                    self.failed.append(f"{about}: the run was cut")
                    return
                self._take(about, act)
            self._cut.wait(self._dwell)
        except Exception:
            self.failed.append(traceback.format_exc(limit=4))
        finally:
            self.library = load.stop()

    def _planned(self) -> Iterator[tuple[str, Callable[[], None]]]:
        yield "migrate the schema", self._migrate
        has_levels = self._old.level < SUPPORTED
        for number, release in enumerate((CURRENT, self._old, CURRENT)):
            for server in self.topology.servers:
                yield f"{server.name} to {release.name}", partial(self._replace, server, release)
                if has_levels and number == 0 and server is self.topology.servers[0]:
                    yield "try to raise the level too early", self._raise_too_early
        if has_levels:
            yield "raise the level", self._raise_level
            yield f"try to start {self._old.name}", self._try_old

    def _take(self, about: str, act: Callable[[], None]) -> None:
        self.active.add(about)
        began = time.monotonic_ns()
        act()
        ended = time.monotonic_ns()
        self.active.discard(about)
        self.steps.append(Step(about=about, seconds=(ended - began) / 1e9))
        self.happened.append(InjectedFault(kind=KIND, about=about, began_ns=began, ended_ns=ended, victims=frozenset()))

    def _migrate(self) -> None:
        status, text = self.topology.command(CURRENT, "migrate")
        if status != 0:
            raise RuntimeError(f"`lakelog migrate` failed: {text[-1000:]}")

    def _raise_too_early(self) -> None:
        """Check that the command refuses while older servers live, and names each of them."""
        status, text = self.topology.command(CURRENT, "migrate", "--raise-level")
        named = text.count(f"(level {self._old.level})")
        if status == 0 or named != len(self.topology.servers) - 1:
            raise RuntimeError(f"`--raise-level` named {named} servers: status {status}, {text[-1000:]}")

    def _raise_level(self) -> None:
        until = time.monotonic() + RAISED_SECONDS
        while (told := self.topology.command(CURRENT, "migrate", "--raise-level"))[0] != 0:
            # A server that did not leave the directory counts as live for a minute.
            if self._cut.wait(5.0) or time.monotonic() > until:
                raise RuntimeError(f"`--raise-level` failed: {told[1][-1000:]}")

    def _try_old(self) -> None:
        """Check that an older server is refused: at its start, or when it writes the progress of a group.

        Its log must name the level. Responses do not: they tell nothing about the database.
        """
        command = self.topology.servers[0].process.command
        port = free_port()
        env = {**command.env, **self._old.environment, "LAKELOG_FORWARD": "false"}
        process = self.topology.supervisor.start(self._old.argv("serve", "--port", str(port)), env=env, name="too-old")
        try:
            eventually(lambda: not process.running or is_ready(port), within=60, what="the old server starts or ends")
            status, text = consume(port, self.topology.token) if process.running else (0, "")
            if status == 200 or REFUSAL not in process.log_text():
                raise RuntimeError(f"{self._old.name} was not refused: {status} {text}; {process.log_text()[-1000:]}")
        finally:
            process.kill9()

    def _replace(self, server: LabServer, release: Release) -> None:
        """Drain the server, and start the other version in its place."""
        process = server.process
        if (status := process.terminate()) != 0:
            raise RuntimeError(f"{server.name} ended with {status}: {process.log_text()[-1000:]}")
        env = {**process.command.env, **release.environment}
        argv = release.argv("serve", "--port", str(server.port))
        process.command = replace(process.command, argv=argv, env=env)
        process.start()
        self.topology.await_ready(server)


def is_ready(port: int) -> bool:
    """Return whether the server at this port accepts calls."""
    try:
        return call(port, "GET", "/readyz")[0] == 200
    except OSError:
        return False


def consume(port: int, token: str) -> tuple[int, str]:
    """Return the status and the body of a consume by a new group at the server at this port."""
    body = {"topic": TOPIC, "group": "too-old", "owner": "too-old", "max_messages": 1, "start_from": "earliest"}
    return call(port, "POST", "/v1/consume", {**body, "lease_ms": 1000, "wait_ms": 0}, token)


def call(port: int, method: str, path: str, body: object = None, token: str = "") -> tuple[int, str]:
    """Return the status and the body of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, json.dumps(body), headers(token))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
