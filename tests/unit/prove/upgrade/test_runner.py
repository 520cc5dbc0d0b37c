"""The steps of a rolling upgrade, and their order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.model.levels import SUPPORTED
from prove.upgrade import runner as module
from prove.upgrade.command import run_size
from prove.upgrade.library_load import LibraryFigures
from prove.upgrade.release import CURRENT, Release
from prove.upgrade.runner import REFUSAL, UpgradeRunner
from tests.kit.process import Command

OLD = Release(name="v1", folder=Path("/old"))


class StubProcess:
    def __init__(self, status: int = 0, log: str = "why") -> None:
        self.status = status
        self.log = log
        self.command = Command(argv=["old"], env={"LAKELOG_DRAIN_SECONDS": "3", **OLD.environment})
        self.started: list[Command] = []

    running = True

    def kill9(self) -> None:
        self.running = False

    def terminate(self) -> int:
        return self.status

    def start(self) -> None:
        self.started.append(self.command)

    def log_text(self) -> str:
        return self.log


class StubTopology:
    def __init__(self) -> None:
        self.servers = [SimpleNamespace(name=f"server{n}", port=n, process=StubProcess()) for n in range(2)]
        self.commands: list[tuple[str, ...]] = []
        self.status = 0
        self.too_early = (1, "These servers do not support it: 127.0.0.1:1 (level 1).")
        self.token = "secret"
        self.extra = StubProcess(log=f"did not complete the statement: The installation has {REFUSAL}")
        self.supervisor = SimpleNamespace(start=self._start)

    def command(self, release: Release, *arguments: str) -> tuple[int, str]:
        self.commands.append((release.name, *arguments))
        return self.too_early if "--raise-level" in arguments and self.is_mixed else (self.status, "output")

    @property
    def is_mixed(self) -> bool:
        """Return whether only the first server was replaced."""
        return [len(server.process.started) for server in self.servers] == [1, 0]

    def _start(self, argv: list[str], *, env: dict[str, str], name: str) -> StubProcess:
        self.extra.command = Command(argv=argv, env=env)
        return self.extra

    def await_ready(self, server: Any) -> None:
        assert server.process.started


class StubLoad:
    def __init__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> LibraryFigures:
        return LibraryFigures(published=1, handled=1, again=0, wrong=())


def run(topology: StubTopology, monkeypatch: pytest.MonkeyPatch, *, status: int = 503) -> UpgradeRunner:
    monkeypatch.setattr(module, "LibraryLoad", StubLoad)
    monkeypatch.setattr(module, "is_ready", lambda port: True)
    monkeypatch.setattr(module, "consume", lambda port, token: (status, "body"))
    runner = UpgradeRunner(topology, OLD, 0.0)  # type: ignore[arg-type]
    runner.run()
    return runner


def test_servers_are_replaced_one_at_a_time_and_back_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = StubTopology()
    runner = run(topology, monkeypatch)
    assert runner.failed == []
    assert topology.commands[0] == (CURRENT.name, "migrate")
    replaced = [each.about for each in runner.steps if each.about.startswith("server")]
    assert replaced == [f"server{n} to {release.name}" for release in (CURRENT, OLD, CURRENT) for n in (0, 1)]
    assert len(runner.happened) == len(runner.steps)
    ran = [each.env["PYTHONPATH"] for each in topology.servers[0].process.started]
    assert ran == [release.environment["PYTHONPATH"] for release in (CURRENT, OLD, CURRENT)]
    assert all(each.env["LAKELOG_DRAIN_SECONDS"] == "3" for each in topology.servers[0].process.started)
    assert runner.library is not None
    assert [each.about for each in runner.steps if " to raise " in each.about] == ["try to raise the level too early"]
    assert topology.commands[1:] == [(CURRENT.name, "migrate", "--raise-level")] * 2
    assert [each.about for each in runner.steps][-2:] == ["raise the level", "try to start v1"]
    assert topology.extra.command.env["LAKELOG_FORWARD"] == "false"
    assert not topology.extra.running


def test_a_server_that_does_not_drain_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = StubTopology()
    topology.servers[1].process.status = -9
    runner = run(topology, monkeypatch)
    assert "server1 ended with -9: why" in runner.failed[0]
    assert all("server1" not in each.about for each in runner.steps)


def test_a_migration_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = StubTopology()
    topology.status = 4
    runner = run(topology, monkeypatch)
    assert "`lakelog migrate` failed: output" in runner.failed[0]
    assert runner.steps == []


@pytest.mark.parametrize("told", [(0, "raised"), (1, "another error")])
def test_a_level_that_is_raised_too_early_fails_the_run(monkeypatch: pytest.MonkeyPatch, told: tuple[int, str]) -> None:
    topology = StubTopology()
    topology.too_early = told
    runner = run(topology, monkeypatch)
    assert "`--raise-level` named 0 servers" in runner.failed[0]


@pytest.mark.parametrize(("status", "log"), [(200, REFUSAL), (503, "database away")])
def test_an_old_server_that_is_not_refused_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, status: int, log: str
) -> None:
    topology = StubTopology()
    topology.extra.log = log
    runner = run(topology, monkeypatch, status=status)
    assert "v1 was not refused" in runner.failed[0]
    assert not topology.extra.running


def test_a_release_of_the_same_level_has_nothing_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Release, "level", SUPPORTED)
    topology = StubTopology()
    runner = run(topology, monkeypatch)
    assert runner.failed == []
    assert topology.commands == [(CURRENT.name, "migrate")]


def test_the_size_follows_from_the_minutes() -> None:
    size = run_size(2.0)
    assert (size.load_seconds, size.faults, size.drivers) == (120.0, 0, 0)
