"""The rule for found bugs, and the printed result."""

from __future__ import annotations

import io
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from prove.checker.invariant import Violation
from prove.checker.judgement import CheckVerdict, Judgement
from prove.lab import faults
from prove.lab.report.summary import ReportSummary, RunTimeline
from prove.lab.sizes import SIZES
from prove.lab.verdict import Conclusion
from prove.mutants import command
from prove.mutants.catalog import MUTANTS, Mutant
from prove.mutants.patched_tree import PatchRefused
from prove.mutants.trial import KINDS, NONE, Trial, TrialRunner, trial_of

FIRST = MUTANTS[0]
TIMELINE = RunTimeline(
    published=[], delivered=[], acked=[], redelivered=[], rebalances=[], load_seconds=1, healed=1, drained=1
)


def trial(bug: str = FIRST.name, seed: int = 1, **more: Any) -> Trial:
    return Trial(**{"bug": bug, "seed": seed, "verdict": "invalid", "seconds": 99.0, **more})


def concluded(verdict: str, **found: CheckVerdict) -> Conclusion:
    wrong = Violation(invariant="S1", what="lost")
    summary = ReportSummary(
        size="mutant", seed=1, verdict=verdict, repeat="", invariants=(), faults=(), figures={}, notes=("slow",),
        timeline=TIMELINE,
    )  # fmt: skip
    judged = {name: Judgement(verdict=each, violations=(wrong,)) for name, each in found.items()}
    return Conclusion(judged=judged, effects=(), summary=summary, shown_after={"S1": 2.5})


def finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str, **found: Any) -> int:
    """Run the command with a runner that returns these findings, or raises."""

    def run(self: object, mutant: Mutant | None, seed: int) -> Trial:
        told = found.get((mutant.name if mutant else NONE).replace("-", "_"), {})
        if isinstance(told, BaseException):
            raise told
        return trial(mutant.name if mutant else NONE, seed, **told)

    monkeypatch.setattr(TrialRunner, "run", run)
    monkeypatch.setattr(command, "library", lambda: Path())
    monkeypatch.setattr("signal.signal", lambda *each: None)
    parser = ArgumentParser()
    command.arguments(parser)
    return command.run(parser.parse_args(["--out", str(tmp_path), *words]))


ALL_FOUND = {each.name.replace("-", "_"): {"found": {each.found_by: 1.0}} for each in MUTANTS}
VALID = {"verdict": "valid"}


def test_a_bug_is_found_by_its_own_invariant_only() -> None:
    assert trial(found={"S1": None, "S3": 1.0}).passes(FIRST)
    assert not trial(found={"S3": 1.0}).passes(FIRST)


def test_the_code_as_it_is_has_to_be_valid() -> None:
    assert trial(NONE, verdict="valid").passes(None)
    assert not trial(NONE, verdict="unknown").passes(None)
    assert not trial(NONE, verdict="invalid", found={"S1": 1.0}).passes(None)


def test_only_what_is_surely_violated_is_found() -> None:
    made = trial_of(
        concluded("invalid", S1=CheckVerdict.INVALID, S3=CheckVerdict.INVALID, S5=CheckVerdict.UNKNOWN), "x", 7, 12.0
    )
    assert made.found == {"S1": 2.5, "S3": None}
    assert (made.bug, made.seed, made.seconds, made.notes) == ("x", 7, 12.0, ("slow",))
    assert made.what["S1"] == "S1: lost"


def test_everything_is_run_with_every_seed_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert finished(monkeypatch, tmp_path, "--seeds", "2", "--first", "5", none=VALID, **ALL_FOUND) == 0
    kept = msgspec.json.decode((tmp_path / "mutants.json").read_bytes())
    assert [(each["bug"], each["seed"]) for each in kept[:3]] == [(NONE, 5), (NONE, 6), (FIRST.name, 5)]
    assert len(kept) == 2 * 13


@pytest.mark.parametrize(
    "found", [{"none": VALID, **ALL_FOUND, "idempotency_in_memory": {"found": {"S5": 1.0}}}, {"none": {}, **ALL_FOUND}]
)
def test_one_that_is_not_as_it_should_be_is_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: dict[str, Any]
) -> None:
    assert finished(monkeypatch, tmp_path, "--seeds", "1", **found) == 1


def test_only_some_are_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert finished(monkeypatch, tmp_path, "--only", FIRST.name, **ALL_FOUND) == 0
    kept = msgspec.json.decode((tmp_path / "mutants.json").read_bytes())
    assert [each["seed"] for each in kept] == [1, 2, 3]


def test_nothing_is_said_of_runs_that_were_not_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    only = ("--only", FIRST.name)
    refused = {"synchronous_commit_off": PatchRefused("no longer fits")}
    assert finished(monkeypatch, tmp_path, *only, **refused) == 2
    assert finished(monkeypatch, tmp_path, *only, synchronous_commit_off=KeyboardInterrupt()) == 130
    (tmp_path / "mutants.json").touch()
    assert finished(monkeypatch, tmp_path, *only, **ALL_FOUND) == 2


def test_the_table_has_a_row_for_each_bug_and_a_column_for_each_seed() -> None:
    text = io.StringIO()
    trials = [
        trial(found={"S1": 12.34, "S3": None}),
        trial(seed=2, found={"S1": None}),
        trial(NONE, verdict="valid"),
        trial(NONE, 2, verdict="unknown", notes=("too slow",)),
    ]
    command.show(trials, Console(file=text, width=160))
    told = text.getvalue()
    assert "12.3 s, 99 s" in told and "at the end, 99 s" in told and "valid, 99 s" in told
    assert "S3" in told and "none, seed 2: too slow" in told


def test_all_have_the_same_load_and_the_same_faults() -> None:
    assert set(KINDS) <= set(faults.KINDS)
    assert SIZES["mutant"].kinds <= len(KINDS)


def test_a_run_that_breaks_is_told_and_not_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("prove.mutants.trial.Laboratory", lambda request: 1 / 0)
    stage = TrialRunner(size=SIZES["mutant"], folder=tmp_path, say=print)
    made = stage.run(None, 4)
    assert (made.bug, made.seed, made.verdict) == (NONE, 4, "unknown") and not made.passes(None)
    assert "ZeroDivisionError" in made.notes[0]
