"""The verdict about a normal tenant beside a hostile one: medians are compared, and every requirement can fail."""

from __future__ import annotations

import msgspec

from prove.hostile.command import PhaseFigures, _report
from prove.hostile.normal import Latencies
from prove.lab.laboratory import MEMORY_LIMIT


def phase(beside: bool, p99: float, **other: float) -> PhaseFigures:
    figures = {
        "publish_p50": 1.0,
        "publish_p99": p99,
        "consume_p50": 1.0,
        "consume_p99": p99,
        "health_p99": 5.0,
        "health_longest": 5.0,
        "calls": 100,
        "failed": 0,
        "server_memory": 100,
        "server_cpu": 0.1,
    }
    return msgspec.convert({"beside": beside, **figures, **other}, PhaseFigures)


def test_a_slow_phase_alone_does_not_decide() -> None:
    phases = [phase(False, 10), phase(True, 19), phase(False, 10), phase(True, 500), phase(False, 11), phase(True, 12)]
    report = _report("ci", phases, [])
    assert (report.publish_ratio, report.consume_ratio) == (1.9, 1.9)
    assert report.problems == []


def test_every_requirement_can_fail() -> None:
    worse = phase(True, 21, health_p99=101.0, server_memory=MEMORY_LIMIT + 1, failed=2)
    problems = _report("ci", [phase(False, 10), worse], []).problems
    assert [problem.split(":")[0] for problem in problems] == [
        "p99 of publish",
        "p99 of consume",
        "health checks",
        "memory",
        "2 calls of the normal tenant failed",
    ]


def test_percentiles_of_no_and_of_some_calls() -> None:
    assert Latencies().percentile(0.99) == 0.0
    assert Latencies([float(each) for each in range(100)]).percentile(0.99) == 99.0
