"""The seeds that `scripts/prove simulate` and the long runs use."""

from __future__ import annotations

import argparse
import shlex

import pytest

from prove.lab import command as lab
from prove.lab.sizes import SIZES
from prove.simulation import command
from prove.simulation.command import SeedResults, run
from prove.simulation.known_seeds import KNOWN


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the ranges of seeds that were run, in order. None of them is simulated."""
    ranges: list[tuple[int, int]] = []

    def run_range(first: int, end: int) -> SeedResults:
        ranges.append((first, end))
        return SeedResults(seeds=end - first)

    monkeypatch.setattr(command, "run_range", run_range)
    return ranges


def simulated(words: str) -> int:
    parser = argparse.ArgumentParser()
    command.arguments(parser)
    return run(parser.parse_args([*shlex.split(words), "--jobs", "1"]))


def test_known_seeds_come_first(ran: list[tuple[int, int]]) -> None:
    assert simulated("--known --seeds 60 --first 20000") == 0
    assert ran == [*((seed, seed + 1) for seed in KNOWN), (20_000, 20_050), (20_050, 20_060)]


def test_a_known_seed_that_fails_again_fails_the_run_and_says_what_it_is_known_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, what = next(iter(KNOWN.items()))

    def run_range(first: int, end: int) -> SeedResults:
        return SeedResults(seeds=end - first, violations=[(seed, "S12: gap")] if first == seed else [])

    monkeypatch.setattr(command, "run_range", run_range)

    assert simulated("--known --seeds 1 --first 20000") == 1
    printed = capsys.readouterr().out
    assert what in printed and f"simulate --seed {seed}" in printed


def test_fresh_seeds_differ_each_time_and_can_be_repeated(
    ran: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated("--fresh --seeds 1") == simulated("--fresh --seeds 1") == 0
    (first, _), (second, _) = ran
    assert first != second
    assert f"simulate --first {first} --seeds 1" in capsys.readouterr().out


@pytest.mark.parametrize(("size", "fresh"), [("ci", False), ("nightly", True), ("release", True)])
def test_a_long_run_takes_fresh_seeds_also_where_its_laboratory_is_repeated(
    size: str, fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(lab, "_run", lambda argv: asked.append(argv) or 0)

    assert lab._simulate(SIZES[size], 9) == 0
    assert ("--fresh" in asked[0], "--first" in asked[0]) == (fresh, not fresh)
    assert "--known" in asked[0]
