"""`lakelog dev`: everything in one command, and nothing left behind in whatever way it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lakelog.cli import dev as module
from lakelog.cli import local_postgres
from lakelog.storage.postgres import migrate
from tests.acceptance.cli_kit import Cli, Dev, dev, open_folder
from tests.kit.ports import free_port
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def postmaster(data: Path) -> psutil.Process:
    return psutil.Process(int((data / "postmaster.pid").read_text().split()[0]))


def is_over(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def data_of(started: Dev) -> Path:
    return started.cli.folder / ".lakelog" / "postgres" / "data"


def test_it_stops_cleanly_and_restarts_with_its_data(folder: Path) -> None:
    with dev(folder) as started:
        database = postmaster(data_of(started))
        cli, env, shown = started.cli, started.env, started.process.log_text()
        assert env["LAKELOG_URL"] == started.url
        assert stat.S_IMODE((folder / ".lakelog" / "env").stat().st_mode) == 0o600
        for text in (
            started.url,
            env["LAKELOG_TOKEN"],
            env["LAKELOG_DATABASE_URL"],
            env["LAKELOG_OBJECT_STORE"],
            str(data_of(started).relative_to(folder)),
            "topics create",
        ):
            assert text in shown
        cli.run("topics", "create", "kept")
        cli.run("publish", "kept", "--value", "still here")
        assert "\nok       object store: " in cli.spawn("doctor", code=1).out

        refused = cli.spawn("dev", code=1)
        assert "Another `lakelog dev`" in refused.err and "--data" in refused.err

        assert started.process.terminate() == 0
        assert is_over(database), "PostgreSQL ended before dev did"
        assert "database system is shut down" in (data_of(started).parent / "postgres.log").read_text()

    with dev(folder) as again:
        assert again.env["LAKELOG_TOKEN"] == env["LAKELOG_TOKEN"], "what was copied elsewhere goes on working"
        assert again.cli.run("tail", "kept", "--json").lines[0]["value"] == "still here"


def test_killed_by_9_it_takes_postgresql_with_it_and_starts_again(folder: Path) -> None:
    with dev(folder) as started:
        database = postmaster(data_of(started))
        started.cli.run("topics", "create", "kept")
        os.kill(started.process.pid, signal.SIGKILL)
        started.process.wait()
        eventually(lambda: is_over(database), within=30, what="PostgreSQL ended by itself")
    with dev(folder) as again:
        again.cli.run("topics", "describe", "kept")


def test_a_postgresql_left_behind_is_stopped_first(folder: Path) -> None:
    with dev(folder) as started:
        started.cli.run("topics", "create", "kept")
        assert started.process.terminate() == 0
    user = local_postgres._unprivileged()
    data, log = data_of(started), folder / "stale.log"
    settings = ["-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1", "-c", f"port={free_port()}"]
    with log.open("ab") as output:
        stale = subprocess.Popen(
            [local_postgres._choose(data, user).path("postgres"), "-D", str(data), *settings],
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
            **local_postgres._as(user),
        )
    try:
        eventually(lambda: "ready to accept" in log.read_text(), within=30, what="the stale one runs")
        with dev(folder) as again:
            assert "left behind" in again.process.log_text()
            assert stale.wait(10) == 0
            again.cli.run("topics", "describe", "kept")
    finally:
        stale.kill()
        stale.wait()


def test_it_shows_an_outage_and_leaves_out_what_a_person_did(folder: Path) -> None:
    with dev(folder) as started:
        started.cli.run("topics", "create", "t")
        postmaster(data_of(started)).kill()
        eventually(lambda: "PostgreSQL at" in started.process.log_text(), within=30, what="the outage is shown")
        shown = started.process.log_text()
    assert "warning PostgreSQL at 127.0.0.1:" in shown
    assert "created topic" not in shown and "listens on" not in shown


def test_without_tokens(folder: Path) -> None:
    with dev(folder, "--no-auth", "--data", "elsewhere") as started:
        assert not (folder / ".lakelog").exists()
        assert "LAKELOG_TOKEN" not in (folder / "elsewhere" / "env").read_text()
        assert started.cli.run("topics", "list", "--url", started.url, "--json").json == {"topics": []}
        assert str(folder / "elsewhere" / "env") in started.process.log_text()


def test_a_taken_port(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        asked = Cli(folder=folder, env={}).spawn("dev", "--port", str(port), code=1)
        monkeypatch.setattr(module, "DEFAULT_PORT", port)
        chosen = module._choose_port(None)
    assert f"Port {port} is taken" in asked.err and "--port" in asked.err, "what was asked for is not quietly changed"
    assert not (folder / ".lakelog" / "postgres").exists()
    assert chosen != port and f"using {chosen}" in capsys.readouterr().err


def test_without_the_server_extra_nothing_is_created(folder: Path) -> None:
    program = "import sys; sys.modules['asyncpg'] = None; from lakelog.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "dev"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and "lakelog[server]" in done.stderr, done.stderr
    assert not list(folder.iterdir())


def test_an_object_store_that_is_not_supported_is_refused_before_anything_is_created(folder: Path) -> None:
    done = Cli(folder=folder, env={"LAKELOG_OBJECT_STORE": "ftp://x"}).run("dev", code=1)
    assert "s3://bucket/prefix" in done.err and not list(folder.iterdir())


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that PostgreSQL's user cannot reach")
def test_roots_closed_folder_keeps_its_database_elsewhere_and_says_where(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    place = None
    try:
        with dev(closed) as started:
            shown = started.process.log_text()
            place = next(path for path in local_postgres.SHARED_FOLDER.iterdir() if str(path) in shown)
            started.cli.run("topics", "create", "kept")
        with dev(closed) as again:
            again.cli.run("topics", "describe", "kept")
    finally:
        if place is not None:
            shutil.rmtree(place)


def test_the_local_extras_postgresql(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = local_postgres._bundled()
    user = local_postgres._unprivileged()
    assert bundled, "the development environment has the `local` extra"
    if user is not None and not local_postgres._reachable(bundled[0] / "postgres", user):
        pytest.skip(f"user {user} cannot reach {bundled[0]}")
    majors = [(local_postgres._major(path), path) for path in bundled]
    monkeypatch.setattr(
        local_postgres,
        "_installed",
        lambda: iter(local_postgres.Binaries(folder=path, major=major) for major, path in majors if major),
    )
    said: list[str] = []
    with local_postgres.running(folder, port=None, say=said.append) as postgres:
        assert postgres.major == max(major for major, _ in majors if major)
        assert asyncio.run(migrate(postgres.url))
        database = postmaster(postgres.data)
    assert is_over(database) and len(said) == 1
