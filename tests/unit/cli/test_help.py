"""Help: every command and option has its text, and it is quick."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from lakelog.cli.app import app

LAKELOG = str(Path(sys.executable).with_name("lakelog"))
HELP_SECONDS = 0.4
BARE_SECONDS = 0.02
TRIES = 10


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    command = command or typer.main.get_command(app)
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_and_option_has_help(path: tuple[str, ...]) -> None:
    command = ALL[path]
    assert command.help and command.help.split("\n")[0].rstrip().endswith("."), "a sentence that says what it does"
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} says what it is"
    result = CliRunner().invoke(app, [*path, "--help"])
    assert result.exit_code == 0 and "Usage: " in result.output


def test_the_commands_are_those_of_the_documentation() -> None:
    leaves = {" ".join(path) for path, command in ALL.items() if not hasattr(command, "commands")}
    topics = {f"topics {verb}" for verb in ("create", "list", "describe", "alter", "delete", "purge")}
    tokens = {f"tokens {verb}" for verb in ("create", "list", "revoke")}
    groups = {f"groups {verb}" for verb in ("list", "describe", "seek", "pause", "resume", "alter", "delete")}
    dead = {f"dead {verb}" for verb in ("list", "show", "retry", "redrive", "discard")}
    pipelines = {f"pipelines {verb}" for verb in ("run tier", "run sweep", "plan tier", "runs")}
    alone = {"dev", "serve", "migrate", "publish", "fetch", "tail", "worker", "version"}
    assert leaves == alone | topics | tokens | groups | dead | pipelines


def test_without_arguments_it_shows_help() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2 and "lakelog dev" in result.output and "Exit codes" in result.output


def test_help_is_quick() -> None:
    """The best of a few runs, in processor time; how slow the machine is, its bare interpreter's start says."""
    bare = min(_seconds(sys.executable, "-c", "pass") for _ in range(TRIES))
    limit = HELP_SECONDS * max(1.0, bare / BARE_SECONDS)
    assert any(_seconds(LAKELOG, "--help") < limit for _ in range(TRIES)), limit


def _seconds(*argv: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom lakelog.cli.app import app\n"
        "CliRunner().invoke(app, ['--help'])\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    heavy = {"asyncio", "asyncpg", "msgspec", "numpy", "pyarrow", "pydantic", "rich", "starlette", "uvicorn"}
    assert heavy & set(done.stdout.split()) == set()
