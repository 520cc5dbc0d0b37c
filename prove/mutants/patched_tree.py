"""A copy of the code with a patch applied. The real code is never changed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from prove.mutants.catalog import Mutant

ROOT = Path(__file__).resolve().parents[2]


class PatchRefused(Exception):
    """The error for a patch that no longer applies to the code."""


def mutated(mutant: Mutant, folder: Path) -> Path:
    """Return the folder to put first in `PYTHONPATH`. Processes that have the folder there run the bug."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        ["git", "apply", "--unsafe-paths", "--directory", str(folder), str(mutant.patch)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PatchRefused(f"{mutant.patch.name} no longer applies to the code. Recreate it: {done.stderr.strip()}")
    return folder / "src"
