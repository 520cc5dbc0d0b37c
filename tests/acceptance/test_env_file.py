"""All programs find the server of `lakelog dev` through its file, from the folder of `dev` and from folders below."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_kit import LAKELOG, Cli, Dev, dev, open_folder
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(180)

APP = """
import lakelog

log = lakelog.connect()

@log.topic("orders").subscribe(group="billing", start_from="earliest")
def bill(order):
    print("billed", order, flush=True)
"""


@pytest.fixture(scope="module")
def started() -> Iterator[Dev]:
    with open_folder() as folder, dev(folder) as started:
        started.cli.run("topics", "create", "orders")
        started.cli.run("publish", "orders", "--value", "one")
        yield started


@pytest.fixture
def below(started: Dev) -> Cli:
    """Return a command line in a folder below that of `lakelog dev`."""
    folder = started.cli.folder / "src" / "shop"
    folder.mkdir(parents=True, exist_ok=True)
    return Cli(folder=folder, env={})


def env_path(started: Dev) -> Path:
    return (started.cli.folder / ".lakelog" / "env").resolve()


def test_git_ignores_the_folder(started: Dev) -> None:
    folder = started.cli.folder
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    done = subprocess.run(["git", "-C", str(folder), "status", "--porcelain"], capture_output=True, text=True)
    assert ".lakelog" not in done.stdout


def test_a_script_without_arguments_finds_the_server(below: Cli) -> None:
    program = "import lakelog; print([topic.name for topic in lakelog.connect().topics()])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=below.folder, env=below._whole_env(), capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("['orders']", "")


def test_a_worker_finds_the_server_and_says_so(started: Dev, below: Cli) -> None:
    (below.folder / "app.py").write_text(APP)
    process = below.process("worker", ["worker", "app:log"], None).start()
    try:
        eventually(lambda: "billed" in process.log_text(), within=30, what="the handler ran")
    finally:
        process.terminate()
    assert f"INFO Using {started.url} from {env_path(started)}\n" in process.log_text()


def test_a_command_says_so_on_a_terminal_only(started: Dev, below: Cli) -> None:
    assert below.spawn("topics", "list").err == ""
    ours, theirs = pty.openpty()
    done = subprocess.run([LAKELOG, "topics", "list"], cwd=below.folder, env=below._whole_env(), stderr=theirs)
    os.close(theirs)
    said = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert said == f"Using {started.url} from {env_path(started)}\r\n"


def test_an_error_names_the_file(started: Dev, below: Cli) -> None:
    folder = below.folder / "stale"
    (folder / ".lakelog").mkdir(parents=True)
    (folder / ".lakelog/env").write_text(f"LAKELOG_URL={started.url}\nLAKELOG_TOKEN=lkl_stale\n")
    done = Cli(folder=folder, env={}).run("topics", "list", code=1)
    assert f"came from LAKELOG_TOKEN in {(folder / '.lakelog/env').resolve()}" in done.err


def test_a_file_of_another_user_is_reported(below: Cli) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    folder = below.folder / "foreign"
    (folder / ".lakelog").mkdir(parents=True)
    path = folder / ".lakelog/env"
    path.write_text("LAKELOG_URL=http://127.0.0.1:1\n")
    os.chown(path, 12345, 12345)
    done = Cli(folder=folder, env={}).spawn("topics", "list", "--url", "http://127.0.0.1:9", code=4)
    assert done.err.splitlines()[0] == f"Ignoring {path.resolve()}: it belongs to another user (uid 12345)."
