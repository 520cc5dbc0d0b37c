"""A version of the code to run processes from: this checkout, or a commit in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SERVER = Path("prove") / "lab" / "server.py"
_LEVELS = Path("src") / "lakelog" / "model" / "levels.py"


class CommitMissing(Exception):
    """The commit is not in this clone. A shallow clone has only the newest ones."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A name for reports, and the folder of the code."""

    name: str
    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables with which a process imports this code alone, whatever its working directory is."""
        path = os.pathsep.join(str(each) for each in (self.folder / "src", self.folder))
        return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}

    @property
    def level(self) -> int:
        """Return the highest feature level that the code supports; 1 for code that knows no levels."""
        if not (self.folder / _LEVELS).exists():
            return 1
        asked = [sys.executable, "-c", "from lakelog.model.levels import SUPPORTED; print(int(SUPPORTED))"]
        env = {**os.environ, **self.environment}
        return int(subprocess.run(asked, env=env, capture_output=True, text=True, check=True).stdout)

    def argv(self, *arguments: str) -> list[str]:
        """Return a `lakelog` command. It uses the laboratory's short intervals if the commit has them."""
        module = "prove.lab.server" if (self.folder / _SERVER).exists() else "lakelog"
        return [sys.executable, "-m", module, *arguments]


CURRENT = Release(name="this checkout", folder=ROOT)


def unpack(commit: str, folder: Path) -> Release:
    """Write the files of a commit or tag into the folder, and return them as a release."""
    folder.mkdir(parents=True)
    packed = folder / "release.tar"
    asked = ["git", "archive", f"--output={packed}", commit]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommitMissing(f"Git cannot read '{commit}': {done.stderr.strip()}")
    with tarfile.open(packed) as files:
        files.extractall(folder, filter="data")
    packed.unlink()
    return Release(name=commit, folder=folder)
