"""`lakelog serve` and `lakelog migrate` on real PostgreSQL: requirements, refusals and output."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest

from lakelog.model.levels import SUPPORTED
from tests.acceptance.cli_kit import Cli, open_folder
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Process
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def cli(database: str) -> Iterator[Cli]:
    """Return a command line with an empty database."""
    with open_folder() as folder:
        yield Cli(folder=folder, env={"LAKELOG_DATABASE_URL": database})


@contextmanager
def serving(cli: Cli, *arguments: str) -> Iterator[tuple[str, Process]]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = cli.process("serve", ["serve", "--port", str(port), *arguments], f"{url}/readyz")
    try:
        yield url, process.start(within=60)
    finally:
        process.kill9()


def logged(process: Process) -> list[Any]:
    return [json.loads(line) for line in process.log_text().splitlines()]


def health(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
        return json.load(answer)


def test_serve_without_a_schema_says_migrate(cli: Cli) -> None:
    for arguments in (["serve"], ["serve", "--workers", "2"], ["tokens", "list"]):
        assert "lakelog migrate" in cli.run(*arguments, code=1).err


def test_the_level_is_raised_when_all_servers_support_it(cli: Cli, database: str) -> None:
    async def execute(text: str) -> None:
        connection = await asyncpg.connect(database)
        await connection.execute(text)
        await connection.close()

    cli.run("migrate")
    assert json.loads(cli.run("migrate", "--raise-level", "--json").out) == {"applied": [], "level": SUPPORTED}
    asyncio.run(execute("update lakelog.installation set feature_level = 1"))
    asyncio.run(execute("insert into lakelog.server values ('old', '10.0.0.7:8080', clock_timestamp(), 1)"))
    refused = cli.run("migrate", "--raise-level", code=1).err
    assert "10.0.0.7:8080 (level 1)" in refused
    asyncio.run(execute("delete from lakelog.server"))
    assert f"raised the feature level from 1 to {SUPPORTED}" in cli.run("migrate", "--raise-level").out
    assert f"the feature level is {SUPPORTED}" in cli.run("migrate", "--raise-level").out
    asyncio.run(execute("update lakelog.installation set feature_level = 99"))
    for arguments in (["serve", "--port", "0"], ["migrate", "--raise-level"]):
        assert "feature level 99" in cli.run(*arguments, code=1).err


def test_migrate_is_safe_twice_at_once(cli: Cli) -> None:
    both = [cli.popen("migrate", "--json") for _ in range(2)]
    answers = []
    for process in both:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        answers.append(json.loads(out)["applied"])
    assert [] in answers and any(answers), "one applied everything, the other found nothing to do"
    assert "up to date" in cli.run("migrate").out


def test_it_serves_until_sigterm(cli: Cli) -> None:
    cli.run("migrate")
    made = cli.run("tokens", "create", "--name", "t", "--rights", "read,publish,manage", "--json").json
    metrics = f"127.0.0.1:{free_port()}"
    with serving(cli, "--workers", "2", "--metrics-listen", metrics) as (url, process):
        known = Cli(folder=cli.folder, env={"LAKELOG_URL": url, "LAKELOG_TOKEN": made["secret"]})
        known.run("topics", "create", "t")
        assert known.run("publish", "t", "--value", "x").json["offset"] == 0
        assert health(url)["durable"] is True
        # One of the processes has the metrics, and another one may be ready first.
        eventually(lambda: _answers(f"http://{metrics}/v1/metrics"), what="it has metrics")
        with urllib.request.urlopen(f"http://{metrics}/v1/metrics", timeout=30) as answer:
            assert b"lakelog_group_series_left_out 0.0" in answer.read(), "without a token"
        cli.run("tokens", "revoke", made["id"])
        assert process.terminate() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_the_log_has_one_line_for_the_start_and_two_for_the_end(cli: Cli, workers: int) -> None:
    cli.run("migrate")
    store = f"file://{cli.folder}/objects"
    with serving(cli, "--workers", str(workers), "--object-store", store) as (url, process):
        assert process.terminate() == 0
        start, drain, end = logged(process)
    assert (start["event"], start["url"], start["workers"]) == ("server_started", url, workers)
    assert (start["database"], start["object_store"], start["authentication"]) == (
        cli.env["LAKELOG_DATABASE_URL"].partition("@")[2],
        store,
        True,
    )
    assert start["version"] in start["message"] and start["database"] in start["message"]
    assert (drain["event"], drain["signal"], end["event"]) == ("server_draining", "SIGTERM", "server_stopped")


def test_an_outage_of_postgresql_is_logged_from_start_to_end() -> None:
    with Cluster() as cluster, open_folder() as folder:
        cli = Cli(folder=folder, env={"LAKELOG_DATABASE_URL": cluster.create_database()})
        cli.run("migrate")
        with serving(cli, "--no-auth") as (url, process):
            cluster.stop()
            eventually(lambda: not _answers(f"{url}/readyz"), what="it is not ready")
            for _ in range(20):
                assert not _answers(f"{url}/v1/topics")
            cluster.start()
            eventually(lambda: _answers(f"{url}/readyz"), what="it is ready again")
            lines = logged(process)
    events = [line["event"] for line in lines]
    assert events[:3] == ["no_authentication", "server_started", "database_failed"]
    assert sorted(events[-2:]) == ["database_recovered", "server_ready"]
    assert events.count("server_unready") == 1 and len(events) <= 10
    name = cli.env["LAKELOG_DATABASE_URL"].partition("@")[2]
    assert {line["database"] for line in lines if line["event"].startswith("database_")} == {name}


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_used_port_is_reported(cli: Cli) -> None:
    cli.run("migrate")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cli.spawn("serve", "--port", str(taken.getsockname()[1]), code=1)
    assert "--port" in done.err and "Traceback" not in done.err


def test_without_authentication_only_loopback(cli: Cli) -> None:
    cli.run("migrate")
    assert "loopback" in cli.run("serve", "--no-auth", "--host", "0.0.0.0", code=1).err
    with serving(cli, "--no-auth") as (url, process):
        assert cli.run("topics", "list", "--url", url, "--json").json == {"topics": []}
        assert "anyone on this machine" in process.log_text()


def test_an_unsupported_object_store_is_refused_before_postgresql_is_called(cli: Cli) -> None:
    away = Cli(folder=cli.folder, env={"LAKELOG_DATABASE_URL": f"postgresql://127.0.0.1:{free_port()}/x"})
    done = away.run("serve", "--object-store", "ftp://x", code=1)
    assert len(done.err.splitlines()) == 1 and "s3://bucket/prefix" in done.err


def test_settings_of_the_environment_are_checked(cli: Cli) -> None:
    broken = Cli(folder=cli.folder, env={**cli.env, "LAKELOG_WORKERS": "many"})
    assert "LAKELOG_WORKERS" in broken.run("serve", code=1).err


def test_it_waits_a_while_for_postgresql() -> None:
    with Cluster() as cluster, open_folder() as folder:
        cli = Cli(folder=folder, env={"LAKELOG_DATABASE_URL": cluster.create_database()})
        cli.run("migrate")
        cluster.stop()
        assert "cannot be reached" in cli.run("migrate", code=4).err
        port = free_port()
        process = cli.process("serve", ["serve", "--no-auth", "--port", str(port)], None)
        try:
            process.start()
            eventually(lambda: "Retrying for" in process.log_text(), within=60, what="it misses PostgreSQL")
            cluster.start()
            eventually(lambda: _is_ready(port) or not process.running, within=60, what="it serves")
            assert process.running, process.log_text()
        finally:
            process.kill9()


def _is_ready(port: int) -> bool:
    try:
        return bool(health(f"http://127.0.0.1:{port}")["status"] == "ok")
    except OSError:
        return False


def test_a_database_that_loses_messages_is_refused_unless_allowed() -> None:
    with Cluster() as cluster, open_folder() as folder:
        cli = Cli(folder=folder, env={"LAKELOG_DATABASE_URL": cluster.create_database()})
        cli.run("migrate")
        safe = cluster.settings
        for setting in ("full_page_writes", "synchronous_commit", "fsync"):
            cluster.settings = {**safe, setting: "off"}
            cluster.restart()
            refused = cli.run("serve", code=1)
            assert f"{setting}=off" in refused.err and "--allow-not-durable" in refused.err
        with serving(cli, "--allow-not-durable") as (url, process):
            said = health(url)
            assert said["durable"] is False and "NOT DURABLE" in said["warnings"][0]
            assert process.log_text().count("NOT DURABLE") == 1


def test_partitions_alternate_between_cells(cli: Cli, second_database: str) -> None:
    cell = ("--cell", f"second={second_database}")
    assert "(cell second)" in cli.run("migrate", *cell).out
    assert "second" in cli.run("serve", code=1).err, "a cell that is not named is missed"
    with serving(cli, *cell, "--no-auth") as (url, _):
        cli.run("topics", "create", "t", "--partitions", "2", "--url", url)
        for partition in "01":
            cli.run("publish", "t", "--value", f"in {partition}", "--partition", partition, "--url", url)
        lines = cli.run("tail", "t", "--url", url, "--json").lines
        assert sorted(line["value"] for line in lines) == ["in 0", "in 1"]
    assert "NAME=TEXT" in cli.run("migrate", "--cell", "second", code=2).err
