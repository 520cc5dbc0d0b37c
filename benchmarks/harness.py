"""Runs benchmarks: legs alternate in one run (ours, a peer, ours, …), and the figure is the median of the rounds.

It does not depend on a benchmark or a server.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from benchmarks import cpu, flame
from benchmarks.corpus import PARTITIONS, Corpus, corpus
from benchmarks.environment import Environment
from tests.kit.size import Size

OURS = "ours"
CI_DISTINCT = 10_000
BUSY = 1.0
"""Load by other processes on the machine. Above this, the figures are not meaningful on few cores."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkPlan:
    """The size of a run. `messages` is per counted leg, `seconds` per timed leg."""

    size: Size
    rounds: int
    messages: int
    seconds: float
    flames: Path | None = None
    """Folder for flame graphs of our legs."""
    with_peers: bool = True

    @property
    def corpus(self) -> Corpus:
        return corpus(CI_DISTINCT) if self.size is Size.CI else corpus()


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The result of one leg: the figure, and notes for the conditions (`p99_ms`, …).

    `messages` is the number that the leg moved, if it differs from the plan.
    """

    figure: float
    notes: Mapping[str, float] = field(default_factory=dict)
    messages: int = 0


Leg = Callable[[], Measured]
Legs = Callable[[Environment, BenchmarkPlan], AbstractContextManager[Mapping[str, Leg]]]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark. `legs` yields `ours` and the peers, which can be run repeatedly.

    `targets`: for `ours` the figure, for a peer the ratio, for `a/b` the ratio of one peer to another, and for
    `p99_ms`, `client_us` and the like the maximum of our note.
    """

    name: str
    about: str
    unit: str
    legs: Legs
    plans: Mapping[Size, BenchmarkPlan]
    targets: Mapping[str, float]
    less_is_better: bool = False


@dataclass(frozen=True, kw_only=True)
class BenchmarkReport:
    """The report to print."""

    name: str
    unit: str
    ours: float
    peers: Mapping[str, float]
    ratios: Mapping[str, float]
    conditions: Mapping[str, Any]


def run(benchmark: Benchmark, plan: BenchmarkPlan, progress: Callable[[str], None]) -> BenchmarkReport:
    made = plan.corpus
    with Environment() as environment:
        conditions = _conditions(plan, environment, made)
        if conditions["load_before"] > BUSY:
            progress(f"the machine is busy (load {conditions['load_before']}): do not quote these figures")
        with benchmark.legs(environment, plan) as made_legs:
            legs = {name: leg for name, leg in made_legs.items() if plan.with_peers or name == OURS}
            measured: dict[str, list[Measured]] = {name: [] for name in legs}
            for number, (name, leg) in _alternate(plan.rounds, legs):
                environment.settle()
                flames = plan.flames if name == OURS else None
                with flame.drawn(flames, benchmark.name, environment.servers) if flames else nullcontext():
                    result = _metered(leg, environment, plan)
                measured[name].append(result)
                figure = f"{result.figure:,.0f} {benchmark.unit} {_text(result)}"
                progress(f"round {number} of {plan.rounds}: {name} {figure}")
        # Only now is it known whether a peer is installed.
        conditions |= environment.notes
    return _report(benchmark, measured, conditions)


def _metered(leg: Leg, environment: Environment, plan: BenchmarkPlan) -> Measured:
    """Run the leg, and note the processor time of each part per message."""
    before = cpu.used(environment)
    result = leg()
    messages = result.messages or plan.messages
    if not messages:
        return result
    used = cpu.used(environment).per_message(before, messages)
    return replace(result, notes={**result.notes, **used})


def _alternate(rounds: int, legs: Mapping[str, Leg]) -> Iterator[tuple[int, tuple[str, Leg]]]:
    for number in range(1, rounds + 1):
        for item in legs.items():
            yield number, item


def _report(
    benchmark: Benchmark, measured: Mapping[str, list[Measured]], conditions: dict[str, Any]
) -> BenchmarkReport:
    figures = {name: statistics.median(one.figure for one in legs) for name, legs in measured.items()}
    ours = figures.pop(OURS)
    ratios = {name: (theirs / ours if benchmark.less_is_better else ours / theirs) for name, theirs in figures.items()}
    conditions["each_round"] = {name: [round(one.figure, 1) for one in legs] for name, legs in measured.items()}
    for name, legs in measured.items():
        for note in legs[0].notes:
            conditions.setdefault(note, {})[name] = round(statistics.median(one.notes[note] for one in legs), 3)
    return BenchmarkReport(
        name=benchmark.name,
        unit=benchmark.unit,
        ours=round(ours, 3),
        peers={name: round(figure, 3) for name, figure in figures.items()},
        ratios={name: round(ratio, 3) for name, ratio in ratios.items()},
        conditions=conditions,
    )


def verdicts(benchmark: Benchmark, report: BenchmarkReport) -> dict[str, bool]:
    """Return each target, and whether this run reached it."""
    reached = {}
    for name, target in benchmark.targets.items():
        if name == OURS:
            reached[name] = report.ours <= target if benchmark.less_is_better else report.ours >= target
        elif name in report.ratios:
            reached[name] = report.ratios[name] >= target
        elif "/" in name:
            one, other = name.split("/")
            if one not in report.ratios or other not in report.ratios:
                continue
            reached[name] = report.ratios[other] / report.ratios[one] >= target
        elif name in report.conditions:
            reached[name] = report.conditions[name][OURS] <= target
    return reached


def _conditions(plan: BenchmarkPlan, environment: Environment, made: Corpus) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "fsync_us": fsync_us(environment.cluster.folder),
        "postgresql": environment.version,
        "postgresql_settings": dict(environment.settings),
        "messages": plan.messages,
        "seconds": plan.seconds,
        "rounds": plan.rounds,
        "size": plan.size.value,
        "partitions": PARTITIONS,
        "distinct_messages": len(made),
        "corpus_ratio": round(made.ratio, 2),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def fsync_us(folder: Path, *, times: int = 200) -> float:
    """Return the median time to make 8 KiB durable in place, as a commit does with the PostgreSQL log."""
    path = folder / "fsync-probe"
    page = b"\0" * 8192
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.write(file, page * times)
        os.fsync(file)
        taken = []
        for number in range(times):
            start = perf_counter_ns()
            os.pwrite(file, page, number * len(page))
            os.fdatasync(file)
            taken.append(perf_counter_ns() - start)
    finally:
        os.close(file)
        path.unlink()
    return round(statistics.median(taken) / 1000, 1)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _text(result: Measured) -> str:
    return " ".join(f"{name} {value:.2f}" for name, value in result.notes.items())


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
