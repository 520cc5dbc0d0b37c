"""The steps of a rolling upgrade: migrate, replace the servers one at a time, go back, and replace them again.

The programs with the Python client start before the first step, and end after the last one.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from prove.lab.fault_runner import FaultRunner, InjectedFault
from prove.lab.topology import LabServer, Topology
from prove.upgrade.library_load import LibraryFigures, LibraryLoad
from prove.upgrade.release import CURRENT, Release

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
        for release in (CURRENT, self._old, CURRENT):
            for server in self.topology.servers:
                yield f"{server.name} to {release.name}", partial(self._replace, server, release)

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
