"""Faults of servers: limits that are set and removed, and fail points that exist."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import lakelog
from prove.lab.claims import Busy, Claims
from prove.lab.faults import resources, servers
from tests.kit.process import Command, Process

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def topology(tmp_path: Path) -> Iterator[Any]:
    process = Process(Command(argv=SLEEPS), log_path=tmp_path / "log").start()
    server = SimpleNamespace(name="server0", process=process)
    yield SimpleNamespace(
        claims=Claims(),
        servers=[server],
        server_names=["server0"],
        server=lambda name: server,
        await_ready=lambda server: None,
    )
    process.kill9()


@pytest.mark.parametrize("kind", [resources.DescriptorsGone, resources.MemoryGone])
def test_a_limit_is_set_and_taken_away(topology: Any, kind: type[resources._Limited]) -> None:
    fault = kind()
    process = psutil.Process(topology.servers[0].process.pid)
    before = process.rlimit(fault.resource)
    fault.begin(topology, random.Random(1))
    assert process.rlimit(fault.resource)[0] < (before[0] if before[0] > 0 else sys.maxsize)
    fault.end(topology)
    assert process.rlimit(fault.resource) == before
    topology.claims.take(["server0"], within=0)


def test_who_dies_of_a_limit_is_started_again(topology: Any) -> None:
    fault, process = resources.MemoryGone(), topology.servers[0].process
    fault.begin(topology, random.Random(1))
    process.kill9()
    fault.end(topology)
    assert process.running and fault.about == "server0, which died"


def test_a_point_is_armed_for_one_life(topology: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    process = topology.servers[0].process
    monkeypatch.setattr(
        process,
        "command",
        Command(argv=[sys.executable, "-c", "import lakelog.failpoints as f; f.hit(next(iter(f.armed)))"]),
    )
    monkeypatch.setattr(servers, "POINTS", {"append.before_statement": 1})
    fault, before = servers.ServerKilledAtPoint(), process.command
    fault.begin(topology, random.Random(1))
    assert process.returncode == -9 and fault.about == "server0, append.before_statement"
    fault.end(topology)
    assert process.command is before


def test_a_point_that_is_not_reached_is_no_fault(topology: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "REACHED_SECONDS", 0.1)
    before = topology.servers[0].process.command
    fault = servers.ServerKilledAtPoint()
    with pytest.raises(Busy):
        fault.begin(topology, random.Random(1))
    # Its server was restarted in vain.
    assert fault.has_disturbed
    assert topology.servers[0].process.running and topology.servers[0].process.command is before


@pytest.mark.parametrize("point", servers.POINTS)
def test_every_point_is_one_of_a_server_s(point: str) -> None:
    code = Path(lakelog.__file__).parent
    assert any(f'failpoints.hit("{point}")' in path.read_text() for path in code.rglob("*.py"))
