"""A server's clock is wrong for a while: what its file says, and that it says nothing wrong afterwards."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prove.lab.claims import Busy, Claims
from prove.lab.faults import clocks
from prove.lab.faults.clocks import ClockAhead, ClockBehind, faked


def scene_of(tmp_path: Path) -> Any:
    server = SimpleNamespace(name="server0", clock=tmp_path / "clocks" / "server0")
    return SimpleNamespace(claims=Claims(), server_names=["server0"], server=lambda name: server)


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
    scene = scene_of(tmp_path)
    fault = kind()
    fault.begin(scene, random.Random(1))
    clock = scene.server("server0").clock
    assert sign * float(clock.read_text()) > 12
    assert fault.about.startswith("server0, by ")
    fault.end(scene)
    assert float(clock.read_text()) == 0
    scene.claims.take(["server0"], within=0)
