"""`scripts/prove ci|nightly|release`: runs the laboratory, judges the result, and then runs the simulation."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from prove.check_command import show
from prove.commands import ProveCommand, in_folder, say, seeded
from prove.lab.faults import KINDS
from prove.lab.laboratory import Laboratory, RunRequest
from prove.lab.sizes import SIZES, RunSize, cut_to
from prove.lab.verdict import Conclusion, conclude

_NOT_INSTALLED = 3
"""The exit code of `scripts/test --python` if that Python is not installed."""

ABOUT = {
    "ci": "Run load with faults for a few minutes, and the simulation, as CI does.",
    "nightly": "Run the same for a night with every kind of fault, then the tests that CI leaves out.",
    "release": "Run the same for three days.",
}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, help="seed of the random choices, to repeat a run (default: random)")
    parser.add_argument("--minutes", type=float, help="maximum duration; the load is reduced in proportion")
    parser.add_argument(
        "--fault",
        choices=sorted(KINDS),
        metavar="KIND",
        action="append",
        help="inject only this kind of fault; may be repeated; an unknown kind lists all",
    )
    parser.add_argument("--dir", type=Path, help="folder for histories, logs and the report (default: a new one)")
    parser.add_argument("--no-simulation", action="store_true", help="run only the laboratory")


def run(name: str, asked: Namespace) -> int:
    return in_folder(name, asked.dir, lambda folder: _proved(name, asked, folder))


def _proved(name: str, asked: Namespace, folder: Path) -> int:
    began = time.monotonic()
    size = SIZES[name] if asked.minutes is None else cut_to(SIZES[name], asked.minutes)
    seed = seeded(asked.seed)
    kinds, repeat = tuple(asked.fault or _possible(size)), _repeat(name, asked, seed)
    say(f"{name}, seed {seed}: {size.messages:,} messages, {size.faults} faults of {size.kinds} kinds; {folder}")
    finished = Laboratory(RunRequest(size=size, seed=seed, folder=folder, kinds=kinds, say=say)).run()
    say("judging")
    concluded = conclude(finished, _asked(size, kinds), seed, repeat)
    show(concluded.judged, seconds=time.monotonic() - began)
    _print_summary(concluded, folder, repeat)
    simulated = 0 if asked.no_simulation else _simulate(size, seed)
    tested = [] if asked.no_simulation else [_test(*chosen) for chosen in _left_out_by_ci(size)]
    say(f"total time {time.monotonic() - began:.0f} s")
    results = (concluded.status, simulated, *tested)
    return 1 if 1 in results else max(results)


def _possible(size: RunSize) -> list[str]:
    """Return the kinds of faults that this size has enough tiering drivers and time for."""
    return [name for name, kind in KINDS.items() if kind.drivers <= size.drivers and kind.is_hard <= size.is_hard]


def _asked(size: RunSize, kinds: tuple[str, ...]) -> RunSize:
    """Return the size with no more kinds than are requested."""
    return replace(size, kinds=min(size.kinds, len(kinds)))


def _repeat(name: str, asked: Namespace, seed: int) -> str:
    words = ["scripts/prove", name, f"--seed {seed}"]
    if asked.minutes is not None:
        words.append(f"--minutes {asked.minutes:g}")
    words += [f"--fault '{each}'" for each in asked.fault or ()]
    return " ".join(words)


def _print_summary(concluded: Conclusion, folder: Path, repeat: str) -> None:
    summary = concluded.summary
    for name, number in summary.figures.items():
        say(f"  {name}: {number:,.5g}" if number != int(number) else f"  {name}: {int(number):,}")
    counted = Counter(each.kind for each in summary.faults if each.counts)
    without = Counter(each.kind for each in summary.faults if not each.counts)
    say("faults that count: " + ", ".join(f"{count} x {kind}" for kind, count in sorted(counted.items())))
    if without:
        say("without effect: " + ", ".join(f"{count} x {kind}" for kind, count in sorted(without.items())))
    for note in summary.notes:
        say(f"! {note}")
    say(f"{summary.verdict}; report: {folder / 'report.html'}; repeat with: {repeat}")


def _simulate(size: RunSize, seed: int) -> int:
    """Run the simulation in its own process, because it replaces the clock and the event loop."""
    # A long run looks for new failures, even if its laboratory run is repeated.
    first = ["--fresh"] if size.is_hard else ["--first", str(seed % 1_000_000)]
    asked = ["--known", "--seeds", str(size.seeds), *first]
    say(f"simulation of {size.seeds:,} seeds")
    status = _run([sys.executable, "-m", "prove", "simulate", *asked])
    return status if status in (0, 1) else 2


def _left_out_by_ci(size: RunSize) -> list[tuple[str, ...]]:
    """Return the arguments of the test runs that are too long for CI: slow tests, and other Python versions."""
    slow = [("-m", "nightly")] if size.is_hard else []
    return [*slow, *(("--python", version) for version in size.pythons)]


def _test(*chosen: str) -> int:
    """Run some of the tests. A Python version that is not installed is skipped with a message."""
    say(f"tests: {' '.join(chosen)}")
    status = _run(["scripts/test", *chosen, "-q"])
    return 0 if status in (0, _NOT_INSTALLED) else 1


def _run(argv: Sequence[str]) -> int:
    """Run a command in its own process group, and end the group if this process is interrupted."""
    process = subprocess.Popen(argv, start_new_session=True)
    try:
        return process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


COMMANDS = tuple(
    ProveCommand(name=name, about=about, arguments=arguments, run=partial(run, name)) for name, about in ABOUT.items()
)
