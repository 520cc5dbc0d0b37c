"""Stalls of the machine, from its own counters, as intervals."""

from __future__ import annotations

from pathlib import Path

import pytest

from prove.lab import cpu_stalls
from prove.lab.cpu_stalls import STALLED, StallMonitor

SECOND = 10**9


def stat(path: Path, *, busy: int, idle: int, stolen: int) -> None:
    path.write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 {stolen} 0 0\ncpu0 1 1 1 1\n")


def test_stretches_in_which_others_had_the_processors(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    stalls = StallMonitor(path)
    counters = [0] * 8
    taken = []
    for second, (busy, idle, stolen) in enumerate([(90, 10, 0), (150, 20, 30), (200, 30, 70), (290, 40, 75)]):
        stat(path, busy=busy, idle=idle, stolen=stolen)
        counters = stalls.look(counters, second * SECOND, (second + 1) * SECOND)
        taken.append(stalls.is_taken)
    assert taken == [False, True, True, False]
    (fault,) = stalls.faults
    assert (fault.kind, fault.began_ns, fault.ended_ns) == (STALLED, SECOND, 3 * SECOND)
    assert (stalls.seconds(), stalls.seconds(2 * SECOND), stalls.seconds(5 * SECOND)) == (2.0, 1.0, 0.0)
    assert (stalls.seconds(0, 2 * SECOND), stalls.seconds(0, SECOND)) == (1.0, 0.0)


def test_where_nobody_counts_nothing_is_taken(tmp_path: Path) -> None:
    with StallMonitor(tmp_path / "missing") as stalls:
        pass
    assert stalls.faults == [] and stalls.seconds() == 0


def test_a_slower_processor_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    took = [100] * 30 + [200] * 30
    ticks = iter([tick for each in took for tick in (0, each)])
    moments = iter(range(60))
    monkeypatch.setattr("time.thread_time_ns", lambda: next(ticks))
    monkeypatch.setattr("time.monotonic_ns", lambda: next(moments))
    stalls = StallMonitor()
    assert stalls.speed() is None
    for _ in took:
        stalls.work()
    assert (stalls.speed(0, 30), stalls.speed(30)) == (1.0, 0.5)
    monkeypatch.setattr(cpu_stalls, "MINUTE_NS", 20)
    assert stalls.speed_by_minute(0, 70) == [1.0, 0.67, 0.5, 0.0]
