"""A seed always gives the same run: twice, after other runs, and in processes that hash texts differently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prove.simulation.run import simulate

ROOT = Path(__file__).resolve().parents[4]
SEEDS = range(40, 46)
SCRIPT = "from prove.simulation.run import simulate\nfor n in range(40, 46): print(simulate(n, traced=True).digest)"


def digests(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_same_seed_gives_the_same_trace_again() -> None:
    first = [simulate(seed, traced=True) for seed in SEEDS]
    again = [simulate(seed, traced=True) for seed in reversed(SEEDS)]

    assert [each.trace for each in first] == [each.trace for each in reversed(again)]
    assert len({each.digest for each in first}) == len(SEEDS)


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    here = [simulate(seed, traced=True).digest for seed in SEEDS]

    assert digests("1") == here == digests("2")


def test_being_watched_changes_nothing() -> None:
    for seed in SEEDS:
        watched, alone = simulate(seed, traced=True), simulate(seed)

        assert {name: len(each) for name, each in watched.tables.by_name.items()} == {
            name: len(each) for name, each in alone.tables.by_name.items()
        }
        assert watched.run == alone.run


@pytest.mark.nightly
def test_chance_draws_every_kind_of_thing() -> None:
    runs = [simulate(seed) for seed in range(100)]
    tables = {name for each in runs for name, rows in each.tables.by_name.items() if len(rows)}
    faults = {kind for each in runs for kind in each.faults}

    assert tables >= {"attempt", "seen", "read", "delivery", "answer", "call", "progress", "dead", "member", "cut"}
    assert faults >= {
        "server crash", "server freeze", "all servers crash", "worker crash", "member crash", "producer crash",
        "clock of a server jumps", "clock of a server drifts", "clock of the database jumps",
        "request lost", "answer lost", "request duplicated", "request replayed", "link slow",
        "store: lost after", "store: lost before", "store: refused", "store: slow",
    }  # fmt: skip
