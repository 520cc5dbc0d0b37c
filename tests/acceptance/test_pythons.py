"""Every Python that the classifiers name: the wheel installs, and the quickstart's Python works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import lakelog
from tests.acceptance.client_kit import ThreadServer
from tests.acceptance.stranger import build_wheel, outside, run, uv
from tests.kit.pages import matches, read_blocks
from tests.unit.docs.markdown import ROOT, section

VERSIONS = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())


def interpreter(version: str) -> str:
    """Return an installed Python of that version. Skip the test if it is not installed."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = [*map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for found in filter(None, [*installed, shutil.which(f"python{version}")]):
        if subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return found
    pytest.skip(f"Python {version} is not installed")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


def test_the_classifiers_name_versions() -> None:
    assert VERSIONS == ["3.11", "3.12", "3.13"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_quickstart_on(version: str, wheel: Path, http_server: ThreadServer, tmp_path: Path) -> None:
    """A plain installation: only the client, without the packages of a server."""
    python = interpreter(version)
    run([uv(), "venv", "--quiet", "--python", python, str(tmp_path / "venv")])
    run([uv(), "pip", "install", "--quiet", "--python", str(tmp_path / "venv/bin/python"), str(wheel)])
    with lakelog.connect(http_server.url) as log:
        log.topic("orders").create(partitions=4)
    blocks = read_blocks(section((ROOT / "README.md").read_text(), "Quickstart"))
    (block,) = (each for each in blocks if each.kind == "python")
    env = {**outside(os.environ), "LAKELOG_URL": http_server.url, "PYTHONWARNINGS": "error"}
    argv = [str(tmp_path / "venv/bin/python"), "-c", block.text]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert matches(block.output, done.stdout), done.stdout
