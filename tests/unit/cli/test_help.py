"""Help: every command and option has its text, and it is quick."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from lakelog.cli.app import app
from tests.kit.ports import free_port

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


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_80_columns_and_shows_no_types(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}).output
    assert all(len(line) <= 80 for line in shown.splitlines())
    summaries = shown.partition("Commands:")[2].splitlines()
    assert [line for line in summaries if line.endswith(("...", "…"))] == [], "no summary is cut off"
    assert [
        noise for noise in ("int range", "RANGE", "<int", "<str", "x>=", "<=x", "{", "(8080)") if noise in shown
    ] == []


def test_values_have_names() -> None:
    shown = CliRunner().invoke(app, ["publish", "--help"], prog_name="lakelog", env={"COLUMNS": "80"}).output
    assert "Usage: lakelog publish [OPTIONS] TOPIC [FILE]\n" in shown
    assert (
        "  --partition N  " in shown
        and "  --key-field, --key-column FIELD\n" in shown
        and "  --header NAME=TEXT  " in shown
    )
    assert "  --format auto|lines|jsonl|json|messages|raw|csv|parquet\n" in shown and "[default: auto]" in shown
    usage = CliRunner().invoke(app, ["dead", "discard", "--help"], prog_name="lakelog").output
    assert "Usage: lakelog dead discard [OPTIONS] GROUP [ID]...\n" in usage
    assert "[default: 8080]" in " ".join(CliRunner().invoke(app, ["serve", "--help"]).output.split())


def test_the_version_is_shown_by_an_option_too() -> None:
    number = CliRunner().invoke(app, ["version"]).stdout
    assert number.strip() and CliRunner().invoke(app, ["--version"]).stdout == number


def test_the_package_runs_as_the_command_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lakelog", "topics", "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout.startswith("Usage: lakelog topics [OPTIONS] COMMAND")


def test_completion_knows_commands_and_is_silent_without_a_server() -> None:
    unused = free_port()

    def completed(words: str, port: int = unused) -> str:
        env = {**os.environ, "LAKELOG_URL": f"http://127.0.0.1:{port}", "_LAKELOG_COMPLETE": "complete_bash"}
        env |= {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        done = subprocess.run([LAKELOG], env=env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert completed("lakelog to").split() == ["topics", "top", "tokens"]
    assert completed("lakelog publish x --format json").split() == ["jsonl", "json"]
    assert completed("lakelog tail ").strip() == ""
    assert completed("lakelog groups describe b").strip() == ""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert completed("lakelog tail ", silent.getsockname()[1]).strip() == ""
        assert time.monotonic() - began < 15, "other commands wait for 30 s"


def test_the_commands_are_those_of_the_documentation() -> None:
    leaves = {" ".join(path) for path, command in ALL.items() if not hasattr(command, "commands")}
    verbs = ("create", "list", "describe", "alter", "delete", "purge", "scheduled", "cancel")
    topics = {f"topics {verb}" for verb in verbs}
    topics |= {f"topics schema {verb}" for verb in ("show", "set", "check", "remove")}
    tokens = {f"tokens {verb}" for verb in ("create", "list", "revoke")}
    groups = {f"groups {verb}" for verb in ("list", "describe", "history", "seek", "skip", "pause", "resume")}
    groups |= {"groups alter", "groups delete"}
    dead = {f"dead {verb}" for verb in ("list", "clusters", "show", "retry", "redrive", "discard", "purge")}
    pipelines = {f"pipelines {verb}" for verb in ("runs", "serve")}
    pipelines |= {f"pipelines run {name}" for name in ("iceberg", "sweep", "replay", "latest", "backfill", "copy")}
    pipelines |= {f"pipelines {verb} {name}" for verb in ("run", "plan") for name in ("tier", "compact")}
    alone = {"apply", "audit", "dev", "serve", "migrate", "publish", "fetch", "tail", "top", "consume", "worker"}
    alone |= {"console", "doctor", "mark", "marks", "mcp", "story", "verify"}
    outbox = {f"outbox {verb}" for verb in ("install", "relay", "rejected list", "rejected retry", "rejected discard")}
    backup = {f"backup {verb}" for verb in ("begin", "list", "end", "restore")}
    assert leaves == {"version"} | alone | topics | tokens | groups | dead | pipelines | outbox | backup


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
