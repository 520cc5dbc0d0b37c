"""`scripts/prove mutants`: runs every seeded bug in the laboratory.

Each must be found, and the unchanged code must pass.

All runs have the same load and the same kinds of faults, so a bug is found by the usual checks.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

from rich.console import Console
from rich.table import Table
from rich.text import Text

from prove.commands import ProveCommand, in_folder, say, write_json
from prove.lab.faults.clocks import library
from prove.lab.sizes import SIZES, cut_to
from prove.mutants.catalog import MUTANTS, Mutant
from prove.mutants.patched_tree import PatchRefused
from prove.mutants.trial import NONE, Trial, TrialRunner

RESULT = "mutants.json"
BY_NAME: dict[str, Mutant | None] = {NONE: None, **{mutant.name: mutant for mutant in MUTANTS}}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--only", choices=list(BY_NAME), nargs="+", help="run only these bugs; `none` is the unchanged code"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of runs per bug (default: 3)")
    parser.add_argument("--first", type=int, default=1, help="first seed (default: 1)")
    parser.add_argument("--minutes", type=float, help="maximum duration of a run; the load is reduced in proportion")
    parser.add_argument("--out", type=Path, help="folder for the runs and mutants.json (default: a new one)")


def run(asked: Namespace) -> int:
    if library() is None:
        say("libfaketime is not installed. Run scripts/install.")
        return 2
    return in_folder("mutants", asked.out, lambda folder: _tried(asked, folder))


def _tried(asked: Namespace, folder: Path) -> int:
    trials: list[Trial] = []
    try:
        _run_all(asked, folder, trials)
    except PatchRefused as error:
        say(str(error))
        return 2
    return 0 if all(trial.passes(BY_NAME[trial.bug]) for trial in trials) else 1


def _run_all(asked: Namespace, folder: Path, trials: list[Trial]) -> None:
    began = time.monotonic()
    size = SIZES["mutant"] if asked.minutes is None else cut_to(SIZES["mutant"], asked.minutes)
    stage = TrialRunner(size=size, folder=folder, say=lambda text: say(f"  {text}"))
    wanted = [(name, asked.first + number) for name in asked.only or BY_NAME for number in range(asked.seeds)]
    say(f"{len(wanted)} runs of {size.load_seconds:g} s of load each; {folder}")
    for number, (name, seed) in enumerate(wanted, 1):
        say(f"{number} of {len(wanted)}, after {time.monotonic() - began:.0f} s: {name}, seed {seed}")
        trials.append(stage.run(BY_NAME[name], seed))
        say(f"  {'as expected' if trials[-1].passes(BY_NAME[name]) else 'WRONG'}: {_result_text(trials[-1])}")
        # After each run, so that an interrupt does not lose the results.
        write_json(folder / RESULT, trials)
    show(trials)
    say(f"{folder / RESULT}; all of it took {time.monotonic() - began:.0f} s")


def show(trials: Sequence[Trial], console: Console | None = None) -> None:
    """Print one row per bug and one column per seed, then the reasons for unexpected results."""
    shown = console or Console()
    table = Table(title="Seeded bugs: seconds of load until each was found, and duration of the run")
    seeds = sorted({trial.seed for trial in trials})
    for column in ("bug", "found by", *(f"seed {seed}" for seed in seeds)):
        table.add_column(column, no_wrap=True)
    table.add_column("and by", overflow="fold")
    for name in dict.fromkeys(trial.bug for trial in trials):
        mutant, mine = BY_NAME[name], {trial.seed: trial for trial in trials if trial.bug == name}
        own = mutant.found_by if mutant else ""
        cells = [_cell(mine[seed], mutant) if seed in mine else Text("") for seed in seeds]
        others = dict.fromkeys(each for trial in mine.values() for each in trial.found if each != own)
        table.add_row(name, own, *cells, ", ".join(others))
    shown.print(table)
    for trial in trials:
        if not trial.passes(BY_NAME[trial.bug]):
            why = [shorten(each, 300) for each in (*trial.what.values(), *trial.notes)]
            shown.print(Text(f"{trial.bug}, seed {trial.seed}: {'; '.join(why)}"))


def _cell(trial: Trial, mutant: Mutant | None) -> Text:
    if not trial.passes(mutant):
        return Text("not found" if mutant else trial.verdict, style="bold red")
    after = _after(trial, mutant.found_by) if mutant else trial.verdict
    return Text(f"{after}, {trial.seconds:.0f} s", style="green")


def _after(trial: Trial, invariant: str) -> str:
    seconds = trial.found[invariant]
    return "at the end" if seconds is None else f"{seconds:.1f} s"


def _result_text(trial: Trial) -> str:
    found = ", ".join(f"{name} ({_after(trial, name)})" for name in trial.found) or "no invariant violated"
    return "; ".join([trial.verdict, found, *(shorten(each, 100) for each in trial.notes), f"{trial.seconds:.0f} s"])


COMMAND = ProveCommand(
    name="mutants",
    about="Apply each of twelve known bugs to the code and check that the laboratory finds it.",
    arguments=arguments,
    run=run,
)
