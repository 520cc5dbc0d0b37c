"""The README's quickstart, as written: from an empty folder and the built wheel."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.process import Supervisor

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def quickstart() -> list[tuple[str, str]]:
    """The blocks of the README's quickstart: language and text."""
    text = (ROOT / "README.md").read_text()
    section = text.split("\n## Quickstart\n", 1)[1].split("\n## ", 1)[0]
    return [(match[1], match[2]) for match in _BLOCK.finditer(section)]


def commands(block: str) -> list[str]:
    return [line.removeprefix("$ ") for line in block.splitlines()]


def uv() -> str:
    found = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".tools/bin"))
    assert found, "scripts/install brings uv"
    return found


def run(argv: list[str], **options: object) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, (argv, done.stdout[-2000:], done.stderr[-3000:])
    return str(done.stdout)


@pytest.mark.timeout(600)
def test_the_quickstart_works_as_written(tmp_path: Path) -> None:
    install, terminal, python, curl = (text for _, text in quickstart())
    pip, dev = commands(install)
    extras = re.search(r"\[[\w,]+\]", pip)
    assert pip.startswith("pip install 'lakelog[") and extras

    run([uv(), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / "dist"), str(ROOT)])
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv = tmp_path / "venv"
    run([uv(), "venv", "--quiet", str(venv)])
    run([uv(), "pip", "install", "--quiet", "--python", str(venv / "bin/python"), f"{wheel}{extras[0]}"])

    folder = tmp_path / "empty"
    folder.mkdir()
    kept = {
        name: text for name, text in os.environ.items() if not name.startswith(("LAKELOG_", "PYTHON", "VIRTUAL_ENV"))
    }
    env = {**kept, "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    (folder / "quickstart.py").write_text(python)
    script = "\n".join([*commands(terminal), "python quickstart.py", *commands(curl)])
    with Supervisor() as supervisor:
        argv = ["env", "-C", str(folder), *(f"{name}={text}" for name, text in env.items()), *shlex.split(dev)]
        supervisor.start(argv, ready="http://127.0.0.1:8080/readyz", name="dev", within=120)
        printed = run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=env)
    assert '"total": 30' in printed or '"total":30' in printed, "the tail shows the message"
    assert "{'account_id': 'a2', 'total': 12}" in printed
    assert '"total": 7' in printed.splitlines()[-1], "curl reads back what curl published"
