"""A copy of the code with a patch in it, beside the real one, which is never touched."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from prove.mutants.catalog import Mutant

ROOT = Path(__file__).resolve().parents[2]


class PatchRefused(Exception):
    """A patch no longer fits the code."""


def mutated(mutant: Mutant, folder: Path) -> Path:
    """The folder to put in front of `PYTHONPATH`: processes that have it there run the bug."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        ["git", "apply", "--unsafe-paths", "--directory", str(folder), str(mutant.patch)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PatchRefused(f"{mutant.patch.name} no longer fits the code; make it anew: {done.stderr.strip()}")
    return folder / "src"
