"""Runs the real `lakelog` command for acceptance tests: to its end, or in the background by the supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lakelog.cli.app import app
from tests.kit import watchdog
from tests.kit.pages import WAITING
from tests.kit.ports import free_port
from tests.kit.process import Command, Process

LAKELOG = str(Path(sys.executable).with_name("lakelog"))


@dataclass(frozen=True, kw_only=True)
class Done:
    """The result of a command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True, kw_only=True)
class Cli:
    """`lakelog` in one folder, with one environment."""

    folder: Path
    env: Mapping[str, str]

    def run(self, *arguments: str, stdin: str | bytes = b"", code: int | None = 0) -> Done:
        """Run the command in this process: starting a Python for each of a hundred commands would take most of the
        time.

        `code` is the expected exit code, None for any.
        """
        env: dict[str, str | None] = {name: None for name in os.environ if name.startswith("LAKELOG_")}
        # A busy machine is no reason for another output.
        with contextlib.chdir(self.folder), pytest.MonkeyPatch.context() as patch:
            patch.setattr("lakelog.cli.waiting.PATIENCE_SECONDS", 60.0)
            result = CliRunner().invoke(app, list(arguments), input=stdin, env={**env, **self.env}, prog_name="lakelog")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return _checked(Done(code=result.exit_code, out=result.stdout, err=result.stderr), arguments, code)

    def spawn(self, *arguments: str, stdin: str | bytes = b"", code: int | None = 0, timeout: float = 180) -> Done:
        """Run the command as a separate process, as a shell does."""
        done = subprocess.run(
            [LAKELOG, *arguments],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            cwd=self.folder,
            env=self._whole_env(),
            timeout=timeout,
        )
        err = WAITING.sub("", done.stderr.decode())
        result = Done(code=done.returncode, out=done.stdout.decode(), err=err)
        return _checked(result, arguments, code)

    def popen(self, *arguments: str, stdout: int | None = subprocess.PIPE) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [LAKELOG, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self._whole_env(),
            # If a shell runs the suite in the background, the suite ignores Ctrl-C, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def process(self, name: str, arguments: Sequence[str], ready: str | None) -> Process:
        """Return the command as a process with its output in a log file; not yet started."""
        # A variable of the caller's shell must not lead a test elsewhere: an empty one counts as absent.
        env = {name: "" for name in os.environ if name.startswith("LAKELOG_")} | dict(self.env)
        command = Command(argv=[LAKELOG, *arguments], env=env, ready=ready, cwd=self.folder)
        return Process(command, log_path=self.folder / f"{name}.log")

    def _whole_env(self) -> dict[str, str]:
        return {name: text for name, text in os.environ.items() if not name.startswith("LAKELOG_")} | dict(self.env)


def _checked(done: Done, arguments: Sequence[str], code: int | None) -> Done:
    assert code is None or done.code == code, f"lakelog {' '.join(arguments)}: {done}"
    return done


@contextmanager
def open_folder() -> Iterator[Path]:
    """Return a folder that PostgreSQL's user can access, unlike pytest's folders."""
    folder = Path(tempfile.mkdtemp(prefix="lakelog-cli-"))
    folder.chmod(0o755)
    watchdog.watch_folder(str(folder))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        watchdog.forget_folder(str(folder))


@dataclass(frozen=True, kw_only=True)
class Dev:
    """A running `lakelog dev` and a command line in its folder."""

    cli: Cli
    process: Process
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        lines = (self.cli.folder / ".lakelog" / "env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@contextmanager
def dev(folder: Path, *arguments: str) -> Iterator[Dev]:
    port = free_port()
    cli = Cli(folder=folder, env={})
    ready = f"http://127.0.0.1:{port}/readyz"
    process = cli.process("dev", ["dev", "--port", str(port), *arguments], ready).start(within=90)
    try:
        yield Dev(cli=cli, process=process, port=port)
    finally:
        process.kill9()
