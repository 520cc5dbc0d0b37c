"""Follows a page like a new user: with the built wheel, in an empty folder, in a terminal of 80 columns.

Every block runs as written, in order, and its output is compared with the page. Only `pip` is replaced: it installs
lakelog from the built wheel, and other packages from uv's cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.kit.pages import INTERRUPT, Block, Command, matches, read_blocks
from tests.kit.terminal import Terminal
from tests.unit.docs.markdown import ROOT

SERVICES = ("lakelog dev",)
"""Commands that run in their own terminal while the reader works in another."""
QUIET_SECONDS = 2.0
_END = "== end of block =="
_SESSION = f"""
import json, sys, traceback
names = {{"__name__": "__main__"}}
for line in sys.stdin:
    block = json.loads(line)
    try:
        exec(compile("\\n" * block["line"] + block["text"], block["page"], "exec"), names)
    except BaseException:
        sys.stdout.flush()
        print("failed:", traceback.format_exc())
    print({_END!r}, flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Took:
    """The duration of a step of the page."""

    what: str
    seconds: float


def uv() -> str:
    found = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".tools/bin"))
    assert found, "scripts/install brings uv"
    return found


def run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (argv, done.stdout[-2000:], done.stderr[-3000:])
    return done.stdout


def build_wheel(folder: Path) -> Path:
    run([uv(), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def outside(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables that point to this checkout."""
    return {name: text for name, text in environ.items() if not re.match("LAKELOG_|PYTHON|VIRTUAL_ENV|SPARK_", name)}


class Stranger:
    """One reader with an empty folder, a new virtual environment and a wheel."""

    def __init__(self, page: Path, folder: Path) -> None:
        self._page = page
        self._folder = folder / "empty"
        self._folder.mkdir(parents=True)
        self._venv = folder / "venv"
        self._wheels = folder / "dist"
        self._env = {**outside(os.environ), "PATH": f"{self._venv / 'bin'}:{os.environ['PATH']}"}
        self.took: list[Took] = []

    def follow(self, env: Mapping[str, str]) -> None:
        """Run every block of the page. Raise at the first whose output differs from the page."""
        self._env |= env
        self._prepare()
        with Terminal(self._folder, self._env) as terminal, self._python() as python:
            for block in read_blocks(self._page.read_text()):
                began = time.monotonic()
                if block.kind == "console":
                    for command in block.commands:
                        self._type(terminal, command)
                elif block.title:
                    (self._folder / block.title).write_text(block.text)
                else:
                    self._execute(python, block)
                    self.took.append(Took(what=f"Python at line {block.line}", seconds=time.monotonic() - began))

    def _prepare(self) -> None:
        wheel = build_wheel(self._wheels)
        # uv identifies wheels by path and version, and the version of a checkout is always the same.
        wheels = self._wheels / hashlib.sha256(wheel.read_bytes()).hexdigest()[:16]
        wheels.mkdir()
        wheel.rename(wheels / wheel.name)
        run([uv(), "venv", "--quiet", str(self._venv)])
        install = f'"{uv()}" pip "$@" --quiet --python "{self._venv}" --prerelease allow'
        install += f' --find-links "{wheels}" --constraint "{self._constraints()}"'
        pip = self._venv / "bin/pip"
        # scripts/install has put everything into uv's cache; a registry is used only if the cache was cleaned.
        pip.write_text(f"#!/bin/sh\n{install} --offline 2>/dev/null || exec {install}\n")
        pip.chmod(0o755)

    def _constraints(self) -> Path:
        """Return the locked versions, without hashes: a wheel that was just built has none."""
        path = self._folder.parent / "constraints.txt"
        lines = (ROOT / "requirements.lock").read_text().splitlines()
        path.write_text("\n".join(line.rstrip(" \\") for line in lines if re.match(r"[a-z0-9].*==", line)))
        return path

    def _type(self, terminal: Terminal, command: Command) -> None:
        began = time.monotonic()
        shown = command.output
        if command.text.startswith(SERVICES):
            printed, code = terminal.serve(command.text, lambda text: matches(shown, text)), 0
        elif INTERRUPT in shown.split("\n"):
            before = shown[: shown.index(INTERRUPT)]
            printed, code = terminal.interrupt(command.text, _Complete(before))
        else:
            printed, code = terminal.run(command.text)
        self._compare(command.line, command.text, shown, printed)
        assert code == 0, f"line {command.line}: {command.text}: exit code {code}"
        self.took.append(Took(what=command.text.partition("\n")[0][:60], seconds=time.monotonic() - began))

    def _execute(self, python: _Python, block: Block) -> None:
        printed = python.execute({"page": self._page.name, "line": block.line, "text": block.text})
        self._compare(block.line, "the Python block", block.output, printed)

    def _compare(self, line: int, what: str, shown: str, printed: str) -> None:
        assert matches(shown, printed), (
            f"{self._page.name}, line {line}: {what}\n--- the page shows:\n{shown}\n--- it printed:\n{printed}"
        )

    @contextmanager
    def _python(self) -> Iterator[_Python]:
        session = _Python(self._venv, self._folder, self._env)
        try:
            yield session
        finally:
            session.close()


class _Complete:
    """Whether an output matches the page, and has been the same for a while: more of it may belong to the page."""

    def __init__(self, expected: str) -> None:
        self._expected = expected
        self._printed = ""
        self._since = time.monotonic()

    def __call__(self, printed: str) -> bool:
        now = time.monotonic()
        if printed != self._printed:
            self._printed, self._since = printed, now
        return now - self._since >= QUIET_SECONDS and matches(self._expected, printed)


class _Python:
    """An interpreter that runs one block after another. It starts with the first block."""

    def __init__(self, venv: Path, folder: Path, env: Mapping[str, str]) -> None:
        self._argv = [str(venv / "bin/python"), "-c", _SESSION]
        self._folder = folder
        self._env = env
        self._process: subprocess.Popen[str] | None = None
        self._errors = folder.parent / "python-errors.txt"

    def execute(self, block: Mapping[str, object]) -> str:
        stdin, stdout = self._pipes()
        stdin.write(json.dumps(block) + "\n")
        stdin.flush()
        printed = ""
        for line in stdout:
            if line == _END + "\n":
                return printed
            printed += line
        raise AssertionError(f"the interpreter ended: {self._errors.read_text()[-3000:]}")

    def close(self) -> None:
        if self._process is not None:
            stdin, stdout = self._pipes()
            stdin.close()
            self._process.wait(timeout=60)
            stdout.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._process is None:
            with self._errors.open("w") as errors:
                self._process = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    cwd=self._folder,
                    env=dict(self._env),
                )
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout
