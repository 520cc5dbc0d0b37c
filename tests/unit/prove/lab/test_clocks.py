"""Server clocks are wrong for a while: the contents of their files during the fault and after it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prove.lab.claims import Busy, Claims
from prove.lab.faults import clocks
from prove.lab.faults.clocks import ClockAhead, ClockBehind, faked


def scene_of(tmp_path: Path) -> Any:
    servers = [SimpleNamespace(clock=tmp_path / "clocks" / f"server{number}") for number in range(3)]
    return SimpleNamespace(claims=Claims(), servers=servers)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(clocks.PLACED, "/libfaketime.so")


def test_a_process_begins_with_a_clock_that_is_right(tmp_path: Path) -> None:
    clock = tmp_path / "clocks" / "server0"
    env = faked(clock)
    assert env["LD_PRELOAD"] == "/libfaketime.so" and env["FAKETIME_TIMESTAMP_FILE"] == str(clock)
    assert float(clock.read_text()) == 0


def test_without_the_library_nothing_is_preloaded_and_no_clock_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "library", lambda: None)
    assert faked(tmp_path / "clock") == {}
    with pytest.raises(Busy, match="not installed"):
        ClockAhead().begin(scene_of(tmp_path), random.Random(1))


@pytest.mark.parametrize(("kind", "sign"), [(ClockAhead, 1), (ClockBehind, -1)])
def test_a_clock_is_wrong_by_more_than_any_lease_and_right_again(
    tmp_path: Path, kind: type[ClockAhead], sign: int
) -> None:
    topology = scene_of(tmp_path)
    fault = kind()
    fault.begin(topology, random.Random(1))
    wrong = [float(server.clock.read_text()) for server in topology.servers]
    assert min(sign * each for each in wrong) > 12 and len(set(wrong)) == len(wrong)
    fault.end(topology)
    assert [float(server.clock.read_text()) for server in topology.servers] == [0.0] * len(wrong)
    topology.claims.take(["clocks"], within=0)


_WAITS_FOR_ANOTHER_THREAD = """
import select, statistics, sys, threading, time

def spin():
    while not over:
        pass

over = False
threading.Thread(target=spin).start()
took = []
for _ in range(50):
    began = time.monotonic()
    select.select([], [], [], 0.002)
    took.append(time.monotonic() - began)
over = True
print(statistics.quantiles(took, n=4)[2] / sys.getswitchinterval())
"""


@pytest.mark.parametrize("wrong", [0, 40, -40])
def test_threads_of_a_process_with_a_wrong_clock_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    """The threads do not spin: a server with two busy threads would take both processors, and not respond for
    seconds."""
    monkeypatch.delenv(clocks.PLACED)
    if clocks.library() is None:
        pytest.skip("libfaketime is not installed")
    env = faked(tmp_path / "clock")
    clocks.set_clock(tmp_path / "clock", wrong)
    told = subprocess.run(
        [sys.executable, "-c", _WAITS_FOR_ANOTHER_THREAD], env={**os.environ, **env}, capture_output=True, check=True
    )
    assert float(told.stdout) >= 1
