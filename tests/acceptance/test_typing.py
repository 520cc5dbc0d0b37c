"""The types of the built wheel: handlers are checked, and no typed name is `Any`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.stranger import build_wheel, run, uv
from tests.unit.docs.markdown import ROOT

SAMPLES = [ROOT / "tests/acceptance" / name for name in ("typed_handlers.py", "untyped_handlers.py")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the samples, and a virtual environment with the wheel."""
    folder = tmp_path_factory.mktemp("project")
    wheel = build_wheel(folder / "dist")
    run([uv(), "venv", "--quiet", str(folder / "venv")])
    run([uv(), "pip", "install", "--quiet", "--python", str(folder / "venv/bin/python"), str(wheel)])
    for sample in SAMPLES:
        (folder / sample.name).write_text(sample.read_text())
    return folder


def pyright() -> str:
    found = sorted(ROOT.glob(".parts/pyright-*/node_modules/pyright/index.js"))
    assert found, "scripts/install brings pyright"
    return str(found[-1])


def refused() -> set[tuple[str, int]]:
    """Return the lines that must be errors."""
    return {
        (sample.name, number)
        for sample in SAMPLES
        for number, line in enumerate(sample.read_text().splitlines(), start=1)
        if line.endswith("# refused")
    }


def errors_of_mypy(project: Path) -> Iterator[tuple[str, int, str]]:
    names = [sample.name for sample in SAMPLES]
    options = ["--strict", "--output=json", f"--python-executable={project / 'venv/bin/python'}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *names], cwd=project, capture_output=True, text=True, timeout=100
    )
    assert not done.stderr, done.stderr
    for line in done.stdout.splitlines():
        if (found := json.loads(line))["severity"] == "error":
            yield found["file"], found["line"], found["message"]


def errors_of_pyright(project: Path) -> Iterator[tuple[str, int, str]]:
    names = [sample.name for sample in SAMPLES]
    done = subprocess.run(
        ["node", pyright(), "--outputjson", f"--pythonpath={project / 'venv/bin/python'}", *names],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=100,
    )
    for found in json.loads(done.stdout)["generalDiagnostics"]:
        if found["severity"] == "error":
            yield Path(found["file"]).name, found["range"]["start"]["line"] + 1, found["message"]


@pytest.mark.parametrize("errors_of", [errors_of_mypy, errors_of_pyright])
def test_handlers_that_do_not_fit_their_topic_are_refused_and_no_others(errors_of: object, project: Path) -> None:
    found = [*errors_of(project)]  # type: ignore[operator]
    assert {(name, line) for name, line, _ in found} == refused(), found
