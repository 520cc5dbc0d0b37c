"""While the machine stalls, producers pause and the clock of the soak stops."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from prove.soak import command
from prove.soak.gauges import GaugeReading


class Stolen:
    """A machine that stalls for the first tenths of a second."""

    def __init__(self, seconds: float) -> None:
        self._began = time.monotonic_ns()
        self._ended = self._began + int(seconds * 1e9)

    @property
    def is_taken(self) -> bool:
        return time.monotonic_ns() < self._ended

    def seconds(self, since_ns: int, until_ns: int) -> float:
        return max(0, min(self._ended, until_ns) - max(self._began, since_ns)) / 1e9


def watched(
    monkeypatch: pytest.MonkeyPatch, stolen: float, *, broken: bool = False
) -> tuple[list[GaugeReading], list[int]]:
    levels: list[int] = []
    clients = SimpleNamespace(progress=SimpleNamespace(throttle=levels.append), broken=["worker-1"] if broken else [])
    topology: Any = SimpleNamespace(clients=clients)
    monkeypatch.setattr(command, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(command, "HOLD_SECONDS", 0.01)
    monkeypatch.setattr(command, "take", lambda topology, at: taken(at))
    stalls: Any = Stolen(stolen)
    return command._watch(topology, stalls, time.monotonic_ns(), 0.3), levels


def taken(at: float) -> GaugeReading:
    return GaugeReading(at=at, memory={}, dead=0, dead_by_table={}, database=0, wal=0, store=0, lag={}, published=0)


def test_what_was_taken_away_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, levels = watched(monkeypatch, 0.2)
    assert looks[-1].at >= 0.5
    assert levels[0] == 2 and levels[-1] == 0


def test_a_machine_that_never_comes_back_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, levels = watched(monkeypatch, 60.0)
    assert looks[-1].at >= 0.6 and set(levels) == {2}


def test_a_broken_client_ends_it_after_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, _ = watched(monkeypatch, 0.0, broken=True)
    assert len(looks) == 1
