"""Compares a benchmark with another checkout: both run it in turns.

The processor time per message is compared, or, for a benchmark that does not measure it, its figure.

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


_CPU = "µs of CPU"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The median here and there, and the median ratio of the pairs."""

    name: str
    unit: str
    here: float
    there: float
    ratio: float
    each_ratio: Sequence[float]


def compare(name: str, other: Path, rounds: int, options: Sequence[str], progress: Callable[[str], None]) -> Comparison:
    """Run the benchmark `rounds` times in each checkout, in turns, and compare the figures."""
    here: list[float] = []
    there: list[float] = []
    unit = _CPU
    for number in range(1, rounds + 1):
        theirs, _ = _measure(other, name, options)
        ours, unit = _measure(_HERE, name, options)
        there.append(theirs)
        here.append(ours)
        progress(f"round {number} of {rounds}: here {ours:.2f} {unit}, there {theirs:.2f} {unit}")
    ratios = [ours / theirs for ours, theirs in zip(here, there, strict=True)]
    return Comparison(
        name=name,
        unit=unit,
        here=round(statistics.median(here), 3),
        there=round(statistics.median(there), 3),
        ratio=round(statistics.median(ratios), 3),
        each_ratio=[round(ratio, 3) for ratio in ratios],
    )


def _measure(checkout: Path, name: str, options: Sequence[str]) -> tuple[float, str]:
    """Return the processor time of all parts per message, or the figure of the benchmark, and its unit."""
    command = [str(checkout / "scripts/bench"), name, "--json", "--rounds", "1", "--no-peers", *options]
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=checkout, env=environment)
    if done.returncode:
        raise RuntimeError(f"The benchmark failed in {checkout}:\n{done.stderr[-2000:]}")
    report = msgspec.json.decode(done.stdout)
    parts = [report["conditions"].get(part, {}).get(OURS) for part in _PARTS]
    if None in parts:
        return float(report["ours"]), str(report["unit"])
    return sum(map(float, parts)), _CPU
