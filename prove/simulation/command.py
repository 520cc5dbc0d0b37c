"""`simulate`: runs seeds, judges them, and prints the command that repeats a failing one."""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field

from prove.commands import ProveCommand, seeded
from prove.simulation.known_seeds import KNOWN

_PER_TASK = 50
_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class SeedResults:
    """The results of a range of seeds."""

    seeds: int = 0
    calls: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    violations: Sequence[tuple[int, str]] = ()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=20_000, help="number of seeds to run (default: %(default)s)")
    first = parser.add_mutually_exclusive_group()
    first.add_argument("--first", type=int, default=0, help="first seed (default: %(default)s)")
    first.add_argument("--fresh", action="store_true", help="draw a random first seed and print it")
    parser.add_argument("--known", action="store_true", help="run the seeds that failed in the past before the others")
    parser.add_argument("--seed", type=int, help="run only this seed and print its trace")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="number of processes (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    """Run the seeds and return the exit code: 1 if an invariant was violated."""
    if options.seed is not None:
        return show(options.seed)
    known = run_known() if options.known else 0
    first = seeded(None) if options.fresh else options.first
    if options.fresh:
        print(f"fresh seeds; repeat with: scripts/prove simulate --first {first} --seeds {options.seeds}", flush=True)
    return max(known, run_many(first, options.seeds, options.jobs))


def show(seed: int) -> int:
    """Run one seed and print its trace."""
    from prove.simulation.judge import judged
    from prove.simulation.run import simulate

    simulated = simulate(seed, traced=True)
    print(simulated.plan)
    for line in simulated.trace:
        print(line)
    print(f"seed {seed}: {simulated.calls} calls, trace {simulated.digest}, faults {dict(simulated.faults)}")
    found = judged(simulated)
    for each in found:
        print(f"VIOLATION {each}")
    return int(bool(found))


def run_known() -> int:
    """Run the seeds that failed in the past. If a seed fails again, print its old violation."""
    failed = 0
    for seed, what in KNOWN.items():
        for _, violation in run_range(seed, seed + 1).violations:
            print(f"VIOLATION seed {seed}: {violation}\n  known for {what}", flush=True)
            print(f"  repeat with: scripts/prove simulate --seed {seed}", flush=True)
            failed = 1
    print(f"{len(KNOWN)} known seeds: {'violations' if failed else 'no violations'}", flush=True)
    return failed


def run_many(first: int, seeds: int, jobs: int) -> int:
    began = time.monotonic()
    total = _Total(began)
    for share in _shares(first, seeds, jobs):
        total.add(share)
        total.tell(seeds)
    total.tell(seeds, end=True)
    return int(bool(total.violations))


def run_range(first: int, end: int) -> SeedResults:
    """Run seeds in sequence in this process."""
    from prove.simulation.judge import judged
    from prove.simulation.run import simulate

    calls, faults, violations = 0, Counter[str](), list[tuple[int, str]]()
    with _swept() as sweep:
        for seed in range(first, end):
            sweep()
            try:
                simulated = simulate(seed)
                found = judged(simulated)
            except Exception as error:
                violations.append((seed, f"the run failed: {error!r}"))
                continue
            calls += simulated.calls
            faults.update(simulated.faults)
            violations += [(seed, each) for each in found]
    return SeedResults(seeds=end - first, calls=calls, faults=faults, violations=violations)


@contextmanager
def _swept() -> Iterator[Callable[[], object]]:
    """Disable the garbage collector, and yield the function that collects.

    A run has little garbage, which is collected after it.
    """
    collects = gc.isenabled()
    gc.disable()
    gc.collect()
    # Objects that exist already are not scanned again for each seed.
    gc.freeze()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        if collects:
            gc.enable()


def _shares(first: int, seeds: int, jobs: int) -> Iterator[SeedResults]:
    ranges = [(at, min(at + _PER_TASK, first + seeds)) for at in range(first, first + seeds, _PER_TASK)]
    if jobs <= 1:
        for begin, end in ranges:
            yield run_range(begin, end)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting: set[Future[SeedResults]] = {pool.submit(run_range, *each) for each in ranges}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for each in done:
                yield each.result()


class _Total:
    """The results of all seeds so far."""

    def __init__(self, began: float) -> None:
        self._began = self._told = began
        self.seeds = self.calls = 0
        self.faults: Counter[str] = Counter()
        self.violations: list[tuple[int, str]] = []

    def add(self, share: SeedResults) -> None:
        self.seeds += share.seeds
        self.calls += share.calls
        self.faults.update(share.faults)
        for seed, what in share.violations:
            if len(self.violations) < _SHOWN:
                print(f"VIOLATION seed {seed}: {what}\n  repeat with: scripts/prove simulate --seed {seed}", flush=True)
            self.violations.append((seed, what))

    def tell(self, seeds: int, *, end: bool = False) -> None:
        now = time.monotonic()
        if now - self._told < 10 and not end:
            return
        self._told = now
        rate = self.seeds / max(now - self._began, 0.001)
        print(f"{self.seeds} of {seeds} seeds, {rate:.1f} seeds/s, {self.calls} calls", flush=True)
        if end:
            print("faults that took effect:")
            for kind, count in sorted(self.faults.items()):
                print(f"  {count:8} {kind}")
            wrong = len({seed for seed, _ in self.violations})
            print(f"{wrong} seeds with violations" if wrong else "no violations")


COMMAND = ProveCommand(
    name="simulate",
    about="Run the engine in virtual time under faults drawn from seeds, and judge each run.",
    arguments=arguments,
    run=run,
)
