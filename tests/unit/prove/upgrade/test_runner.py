"""The steps of a rolling upgrade, and their order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prove.upgrade import runner as module
from prove.upgrade.command import run_size
from prove.upgrade.library_load import LibraryFigures
from prove.upgrade.release import CURRENT, Release
from prove.upgrade.runner import UpgradeRunner
from tests.kit.process import Command

OLD = Release(name="v1", folder=Path("/old"))


class StubProcess:
    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.command = Command(argv=["old"], env={"LAKELOG_DRAIN_SECONDS": "3", **OLD.environment})
        self.started: list[Command] = []

    def terminate(self) -> int:
        return self.status

    def start(self) -> None:
        self.started.append(self.command)

    def log_text(self) -> str:
        return "why"


class StubTopology:
    def __init__(self) -> None:
        self.servers = [SimpleNamespace(name=f"server{n}", port=n, process=StubProcess()) for n in range(2)]
        self.commands: list[tuple[str, ...]] = []
        self.status = 0

    def command(self, release: Release, *arguments: str) -> tuple[int, str]:
        self.commands.append((release.name, *arguments))
        return self.status, "output"

    def await_ready(self, server: Any) -> None:
        assert server.process.started


class StubLoad:
    def __init__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> LibraryFigures:
        return LibraryFigures(published=1, handled=1, again=0, wrong=())


def run(topology: StubTopology, monkeypatch: pytest.MonkeyPatch) -> UpgradeRunner:
    monkeypatch.setattr(module, "LibraryLoad", StubLoad)
    runner = UpgradeRunner(topology, OLD, 0.0)  # type: ignore[arg-type]
    runner.run()
    return runner


def test_servers_are_replaced_one_at_a_time_and_back_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = StubTopology()
    runner = run(topology, monkeypatch)
    assert runner.failed == []
    assert topology.commands[0] == (CURRENT.name, "migrate")
    replaced = [each.about for each in runner.steps if " to " in each.about]
    assert replaced == [f"server{n} to {release.name}" for release in (CURRENT, OLD, CURRENT) for n in (0, 1)]
    assert len(runner.happened) == len(runner.steps)
    ran = [each.env["PYTHONPATH"] for each in topology.servers[0].process.started]
    assert ran == [release.environment["PYTHONPATH"] for release in (CURRENT, OLD, CURRENT)]
    assert all(each.env["LAKELOG_DRAIN_SECONDS"] == "3" for each in topology.servers[0].process.started)
    assert runner.library is not None


def test_a_server_that_does_not_drain_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = StubTopology()
    topology.servers[1].process.status = -9
    runner = run(topology, monkeypatch)
    assert "server1 ended with -9: why" in runner.failed[0]
    assert [each.about for each in runner.steps][-1] == f"server0 to {CURRENT.name}"


def test_a_migration_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = StubTopology()
    topology.status = 4
    runner = run(topology, monkeypatch)
    assert "`lakelog migrate` failed: output" in runner.failed[0]
    assert runner.steps == []


def test_the_size_follows_from_the_minutes() -> None:
    size = run_size(2.0)
    assert (size.load_seconds, size.faults, size.drivers) == (120.0, 0, 0)
