"""Releases: the files of a commit, and processes that import only them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lakelog.model.levels import SUPPORTED
from prove.upgrade import release as module
from prove.upgrade.release import CURRENT, CommitMissing, Release, unpack


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit: a package that names itself, and the laboratory's server."""
    root = tmp_path / "repository"
    for name, text in {"src/lakelog/__init__.py": "NAME = 'old'\n", "prove/lab/server.py": "", "README.md": ""}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    author = ["-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "One"], ["tag", "v1"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    (root / "src/lakelog/__init__.py").write_text("NAME = 'new'\n")
    monkeypatch.setattr(module, "ROOT", root)
    return root


@pytest.mark.usefixtures("repository")
def test_a_process_imports_the_code_of_its_release_alone(tmp_path: Path) -> None:
    old = unpack("v1", tmp_path / "old")
    assert old.name == "v1"
    assert (old.folder / "README.md").exists()
    asked = [*old.argv()[:1], "-c", "import lakelog; print(lakelog.NAME)"]
    env = {**os.environ, **old.environment}
    told = subprocess.run(asked, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout == "old\n"


@pytest.mark.usefixtures("repository")
def test_a_commit_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommitMissing, match="'v2'"):
        unpack("v2", tmp_path / "old")


@pytest.mark.usefixtures("repository")
def test_code_without_levels_has_the_first_one(tmp_path: Path) -> None:
    assert unpack("v1", tmp_path / "old").level == 1
    assert Release(name="this", folder=Path(__file__).parents[4]).level == SUPPORTED


def test_servers_have_the_intervals_of_the_laboratory_if_the_commit_has_it(tmp_path: Path) -> None:
    assert CURRENT.argv("serve")[1:] == ["-m", "prove.lab.server", "serve"]
    assert Release(name="bare", folder=tmp_path).argv("serve")[1:] == ["-m", "lakelog", "serve"]
