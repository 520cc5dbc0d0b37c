"""Compares processor time per message with another checkout: both run the same benchmark in turns.

Each checkout runs its own code with its own servers, and only our leg. The other checkout needs an environment of its
own (`scripts/install`).
"""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.harness import OURS

_PARTS = ("client_us", "server_us", "postgresql_us")
_HERE = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class CpuComparison:
    """Median processor time per message in microseconds, here and there, and the median ratio of the pairs."""

    name: str
    here_us: float
    there_us: float
    ratio: float
    each_ratio: Sequence[float]


def compare(
    name: str, other: Path, rounds: int, options: Sequence[str], progress: Callable[[str], None]
) -> CpuComparison:
    """Run the benchmark `rounds` times in each checkout, in turns, and compare the processor time."""
    here: list[float] = []
    there: list[float] = []
    for number in range(1, rounds + 1):
        there.append(_measure(other, name, options))
        here.append(_measure(_HERE, name, options))
        progress(f"round {number} of {rounds}: here {here[-1]:.2f} µs, there {there[-1]:.2f} µs")
    ratios = [ours / theirs for ours, theirs in zip(here, there, strict=True)]
    return CpuComparison(
        name=name,
        here_us=round(statistics.median(here), 3),
        there_us=round(statistics.median(there), 3),
        ratio=round(statistics.median(ratios), 3),
        each_ratio=[round(ratio, 3) for ratio in ratios],
    )


def _measure(checkout: Path, name: str, options: Sequence[str]) -> float:
    """Return the processor time of all parts per message."""
    command = [str(checkout / "scripts/bench"), name, "--json", "--rounds", "1", "--no-peers", *options]
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=checkout, env=environment)
    if done.returncode:
        raise RuntimeError(f"The benchmark failed in {checkout}:\n{done.stderr[-2000:]}")
    conditions = msgspec.json.decode(done.stdout)["conditions"]
    return sum(float(conditions[part][OURS]) for part in _PARTS)
