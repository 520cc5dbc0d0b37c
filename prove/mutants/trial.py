"""Runs one seeded bug, or none, in the laboratory with one seed, and returns the findings and their times."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prove.checker.judgement import CheckVerdict
from prove.lab.laboratory import Laboratory, RunRequest
from prove.lab.schedule import in_turn
from prove.lab.sizes import RunSize
from prove.lab.verdict import Conclusion, conclude
from prove.mutants.catalog import Mutant
from prove.mutants.patched_tree import mutated

NONE = "none"
"""The name of a trial of the unchanged code."""
FAULT_ORDER: tuple[tuple[str, ...], ...] = (
    ("answer dropped after the commit",),
    ("answer dropped after the commit",),
    ("member stopped, then commits",),
    ("member stopped, then commits",),
    ("members come and go",),
    ("old ack after a new lease",),
    ("postgres killed",),
    ("postgres killed",),
    ("producer killed after sending",),
    ("producer killed after sending",),
    ("server killed",),
    ("server killed",),
    ("servers' clocks ahead",),
    ("worker stopped, then answers",),
)
LAST: tuple[tuple[str, ...], ...] = (
    ("verification's answer lost",),
    ("stored as other bytes",),
)
"""The faults that come last, when there are messages to tier."""
KINDS = tuple(sorted({kind for act in (*FAULT_ORDER, *LAST) for kind in act}))
"""The kinds of faults under which all bugs show. Every run has all of them, in an order that the seed chooses."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of one run."""

    bug: str
    seed: int
    verdict: str
    found: Mapping[str, float | None] = field(default_factory=dict)
    """The violated invariants, each with the seconds of load until the violation; None if only the final state
    shows it.
    """
    what: Mapping[str, str] = field(default_factory=dict)
    """The first counter-example of each violated invariant."""
    seconds: float
    """Duration of the whole run."""
    notes: tuple[str, ...] = ()

    def passes(self, mutant: Mutant | None) -> bool:
        """Return whether the bug was found by its own invariant, or whether the unchanged code is valid."""
        return self.verdict == CheckVerdict.VALID.value if mutant is None else mutant.found_by in self.found


@dataclass(frozen=True, kw_only=True)
class TrialRunner:
    """Runs trials with the same size and folder."""

    size: RunSize
    folder: Path
    say: Callable[[str], None]

    def run(self, mutant: Mutant | None, seed: int) -> Trial:
        began = time.monotonic()
        name = mutant.name if mutant else NONE
        folder = self.folder / f"{name}-{seed}"
        request = RunRequest(
            size=self.size,
            seed=seed,
            folder=folder,
            kinds=KINDS,
            entries=in_turn(seed, FAULT_ORDER, last=LAST, seconds=self.size.load_seconds),
            code=mutated(mutant, folder) if mutant else None,
            postgres=mutant.postgres if mutant else {},
            say=self.say,
        )
        repeat = f"scripts/prove mutants --only {name} --seeds 1 --first {seed}"
        try:
            concluded = conclude(Laboratory(request).run(), self.size, seed, repeat)
        except Exception:
            # A bug may break the run itself, which proves nothing. Continue with the others.
            lost = (traceback.format_exc(limit=-3),)
            return Trial(bug=name, seed=seed, verdict="unknown", seconds=time.monotonic() - began, notes=lost)
        return trial_of(concluded, name, seed, time.monotonic() - began)


def trial_of(concluded: Conclusion, name: str, seed: int, seconds: float) -> Trial:
    wrong = {each: said for each, said in concluded.judged.items() if said.verdict is CheckVerdict.INVALID}
    return Trial(
        bug=name,
        seed=seed,
        verdict=concluded.summary.verdict,
        found={each: concluded.shown_after.get(each) for each in wrong},
        what={each: str(said.violations[0]) for each, said in wrong.items()},
        seconds=seconds,
        notes=concluded.summary.notes,
    )
