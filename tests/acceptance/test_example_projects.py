"""Each example project is installed with the built wheel in a clean environment, and passes its own tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.stranger import build_wheel, outside, run, uv
from tests.kit.size import Size
from tests.unit.docs.markdown import ROOT

PROJECTS = ("django", "fastapi", "flask", "script", "sensor")
TESTS = {"django": 3, "fastapi": 3, "flask": 2, "script": 2, "sensor": 3}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """Return a folder with copies of the projects, and an environment in which all of them are installed.

    A copy must not have the name of a package, which it would hide.
    """
    folder = tmp_path_factory.mktemp("projects")
    wheel = build_wheel(folder / "dist")
    # Dagster is large: its sensor runs at full size only.
    extras = "dagster,test" if Size(pytestconfig.getoption("--size")) is Size.FULL else "test"
    for name in PROJECTS:
        shutil.copytree(
            ROOT / "examples" / name, folder / f"project_{name}", ignore=shutil.ignore_patterns("__pycache__")
        )
    wanted = [f"{folder}/project_{name}[{extras if name == 'sensor' else 'test'}]" for name in PROJECTS]
    locked = (ROOT / "requirements.lock").read_text().splitlines()
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(line.rstrip(" \\") for line in locked if re.match(r"[a-z0-9].*==", line)))
    run([uv(), "venv", "--quiet", str(folder / "venv")])
    install = [uv(), "pip", "install", "--quiet", "--python", str(folder / "venv"), "--constraint", str(constraints)]
    run([*install, str(wheel), *wanted])
    return folder


@pytest.mark.timeout(600)
def test_the_example_projects_pass_their_tests(environment: Path, size: Size) -> None:
    # One process for all: starting five takes most of the time.
    program = [str(environment / "venv/bin/python"), "-m", "pytest", "-v", "-W", "error", "-p", "no:cacheprovider"]
    argv = [*program, "--rootdir=.", "--import-mode=importlib", *(f"project_{name}" for name in PROJECTS)]
    done = subprocess.run(argv, cwd=environment, env=outside(os.environ), capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = Counter(re.findall(r"^project_(\w+)/tests/.* PASSED", done.stdout, re.MULTILINE))
    skipped = Counter({"sensor": 1} if size is Size.CI else {})
    assert passed == Counter(TESTS) - skipped, done.stdout


def test_every_project_is_one_of_the_tested_ones() -> None:
    assert sorted(path.parent.name for path in (ROOT / "examples").glob("*/pyproject.toml")) == list(PROJECTS)
