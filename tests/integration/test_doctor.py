"""`lakelog doctor` on real clusters: a real fault makes each line fail, and the printed remedy clears it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from lakelog.cli.app import app
from lakelog.storage.postgres import install_outbox, migrate
from tests.acceptance.client_kit import ThreadServer
from tests.kit.postgres import Cluster
from tests.kit.waiting import eventually

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "run-doctor.md"
SETTABLE = ("fsync", "full_page_writes", "synchronous_commit", "max_connections")
"""Settings that clusters of tests have on their command line, which overrides ALTER SYSTEM."""


class Patient:
    """A cluster with a migrated database, and `lakelog doctor` for it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = cluster.create_database()
        self.options: list[str] = []
        asyncio.run(migrate(self.url))

    def execute(self, statement: Any) -> list[tuple[Any, ...]]:
        return self.cluster.execute(statement, database=self.url.rpartition("/")[2])

    def doctor(self, *options: str) -> tuple[int, str]:
        arguments = ["doctor", "--database-url", self.url, *self.options, *options]
        result = CliRunner().invoke(app, arguments, prog_name="lakelog")
        assert result.exit_code in (0, 1, 2), result.output
        assert not result.stderr, result.stderr
        lines = [] if "--json" in options else result.stdout.splitlines()
        # Commands and long names, such as a path, are not broken.
        long = [line for line in lines if len(line) > 80 and max(map(len, line.split())) < 60]
        assert all("psql>" in line or "$ " in line for line in long), long
        return result.exit_code, result.stdout

    def finding(self, check: str, *options: str, where: str = "catalog") -> dict[str, Any]:
        _, output = self.doctor("--json", *options)
        found = [each for each in json.loads(output)["findings"] if (each["check"], each["where"]) == (check, where)]
        assert len(found) == 1, output
        finding: dict[str, Any] = found[0]
        return finding

    def treat(self, check: str, *options: str, where: str = "catalog") -> str:
        """Check that a finding is a problem, run its remedy as printed, and check that the finding is cleared."""
        sick = self.finding(check, *options, where=where)
        assert sick["status"] in ("warning", "failed", "skipped"), sick
        _, output = self.doctor(*options)
        self._follow(remedy_of(output, check, where))
        eventually(
            lambda: self.finding(check, *options, where=where)["status"] == "ok",
            what=f"{check} is cleared: {self.finding(check, *options, where=where)}",
        )
        return str(sick["measured"])

    def _follow(self, lines: list[str]) -> None:
        for line in lines:
            if line.startswith("psql> "):
                with psycopg.connect(self.url, autocommit=True) as connection:
                    connection.execute(line.removeprefix("psql> ").encode())
            elif line.startswith("$ lakelog "):
                done = CliRunner().invoke(app, shlex.split(line)[2:], prog_name="lakelog")
                assert done.exit_code == 0, done.output
            elif line.startswith("$ "):
                subprocess.run(line.removeprefix("$ "), shell=True, check=True, capture_output=True)
            elif line == "Restart PostgreSQL.":
                self.cluster.restart()


def remedy_of(output: str, check: str, where: str) -> list[str]:
    """Return the lines below a finding, as a person reads them."""
    section = re.split(r"^(?=\S)", output.partition(f"{where}\n")[2], flags=re.M)
    [found] = [each for each in section if re.match(rf"\w+ +{check}: ", each)]
    lines = [line.strip() for line in found.splitlines()[1:]]
    assert lines, found
    return lines


@pytest.fixture(scope="module")
def patient() -> Iterator[Patient]:
    # With the default age, autovacuum would clear old transaction ids before they are measured.
    cluster = Cluster(settings={"max_prepared_transactions": "5", "autovacuum_freeze_max_age": "2000000000"})
    for name in SETTABLE:
        del cluster.settings[name]
    with cluster:
        yield Patient(cluster)


def test_a_healthy_database_has_only_the_warning_about_a_standby(patient: Patient) -> None:
    code, output = patient.doctor()
    assert code == 1
    problems = [line for line in output.splitlines() if line.startswith(("warning", "failed"))]
    assert problems == ["warning  standby: not durable on failover: there is no standby"]
    assert json.loads(patient.doctor("--json")[1])["status"] == "warning"


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
def test_durability(patient: Patient, name: str) -> None:
    patient.execute(f"ALTER SYSTEM SET {name} = off")
    patient.execute("SELECT pg_reload_conf()")
    eventually(lambda: patient.doctor()[0] == 2, what="the setting is read")
    assert f"{name}=off" in patient.treat("durability")


def test_durability_of_one_database_and_of_one_user(patient: Patient) -> None:
    name = patient.url.rpartition("/")[2]
    patient.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    assert "synchronous_commit=off" in patient.treat("durability")
    patient.execute("ALTER ROLE postgres SET synchronous_commit = off")
    assert "synchronous_commit=off" in patient.treat("durability")


def test_settings_that_need_a_restart(patient: Patient) -> None:
    """The remedies of the three lines are run one after another, each with its restart."""
    for name, value in {
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "max_locks_per_transaction": "10",
        "max_connections": "20",
    }.items():
        patient.execute(f"ALTER SYSTEM SET {name} = {value}")
    patient.cluster.restart()
    assert "250 lock slots, 1,024 needed" in patient.treat("lock slots")
    with ExitStack() as stack:
        for _ in range(14):
            stack.enter_context(psycopg.connect(patient.url))
        assert "connections used, 6 needed by one more server" in patient.finding("connections")["measured"]
        # The connection of the command before ends soon after it.
        eventually(lambda: patient.finding("connections")["status"] == "warning", what="few are left")
        with psycopg.connect(patient.url):
            assert patient.finding("connections")["status"] == "failed"
            remedy = remedy_of(patient.doctor()[1], "connections", "catalog")
    # The restart of the remedy ends the connections, as a restart does.
    with psycopg.connect(patient.url, autocommit=True) as connection:
        connection.execute(remedy[0].removeprefix("psql> ").encode())
    assert "minimal with 0 WAL senders" in patient.treat("wal level")
    assert remedy[-1] == "Restart PostgreSQL."
    with ExitStack() as stack:
        for _ in range(15):
            stack.enter_context(psycopg.connect(patient.url))
        assert patient.finding("connections")["status"] == "ok"


def test_the_page_shows_the_lines_and_the_checks_of_doctor(patient: Patient) -> None:
    """The page has the two faults of this test. Numbers and names are those of its machine."""

    def general(output: str) -> str:
        text = re.sub(r"\d[\d,.]*( ms| s| min)?", "n", " ".join(output.split()))
        return re.sub(r"user \w+", "user", text)

    shown = re.search(r"^```console\n\$ (lakelog doctor .*?)\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert shown is not None
    patient.execute("ALTER SYSTEM SET fsync = off")
    patient.execute("SELECT pg_reload_conf()")
    eventually(lambda: patient.doctor()[0] == 2, what="the setting is read")
    with psycopg.connect(patient.url, application_name="report") as connection:
        connection.execute("begin isolation level repeatable read")
        connection.execute("select 1")
        _, output = patient.doctor("--transaction-age", "10ms")
    for part in shown[2].split("…"):
        assert general(part) in general(output)
    patient.treat("durability")
    findings = json.loads(patient.doctor("--json")[1])["findings"]
    listed = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.M)
    assert sorted(listed) == sorted({each["check"] for each in findings})


def test_an_open_transaction_is_named(patient: Patient) -> None:
    with psycopg.connect(patient.url, application_name="report") as connection:
        connection.execute("begin isolation level repeatable read")
        connection.execute("select 1")
        assert patient.finding("open transactions")["status"] == "ok"
        said = patient.treat("open transactions", "--transaction-age", "10ms")
        assert "of report, user postgres at 127.0.0.1, idle in transaction" in said
        connection.close()


def test_a_prepared_transaction_is_named(patient: Patient) -> None:
    patient.execute("create table if not exists prepared (a integer)")
    with psycopg.connect(patient.url, autocommit=True) as connection:
        connection.execute("begin; insert into prepared values (1); prepare transaction 'it''s left'")
    said = patient.treat("prepared transactions", "--transaction-age", "10ms")
    assert "it's left" in said


def test_an_unused_replication_slot_is_named(patient: Patient) -> None:
    patient.execute("select pg_create_physical_replication_slot('left', true)")
    assert "unused: left holds 0 MiB of WAL" in patient.treat("replication slots")


def test_an_open_transaction_of_the_outbox_is_named(patient: Patient) -> None:
    assert patient.finding("outbox transactions")["status"] == "skipped"
    asyncio.run(install_outbox(patient.url, project="p", environment="e"))
    with psycopg.connect(patient.url, application_name="shop") as connection:
        connection.execute("select lakelog_outbox.publish('orders', '{}'::jsonb)")
        assert patient.finding("outbox transactions")["status"] == "ok"
        said = patient.treat("outbox transactions", "--transaction-age", "10ms")
        assert "of shop, user postgres at 127.0.0.1, idle in transaction" in said
        connection.close()
    patient.execute("drop schema lakelog_outbox cascade")


def test_an_open_transaction_in_the_database_of_an_application_is_named(patient: Patient) -> None:
    """The session is in another database, and is ended by the statement that is printed."""
    url = patient.cluster.create_database()
    asyncio.run(install_outbox(url, project="p", environment="e"))
    where = f"outbox 127.0.0.1:{patient.cluster.port}/{url.rpartition('/')[2]}"
    options = ("--outbox-url", url, "--transaction-age", "10ms")
    with psycopg.connect(url, application_name="shop") as connection:
        connection.execute("select lakelog_outbox.publish('orders', '{}'::jsonb)")
        assert "of shop, user postgres" in patient.treat("outbox transactions", *options, where=where)
        connection.close()
    refused = patient.cluster.url("missing")
    found = patient.finding(
        "connection", "--outbox-url", refused, where=where.replace(url.rpartition("/")[2], "missing")
    )
    assert found["status"] == "failed"


def test_a_user_that_may_not_see_sessions_is_told(patient: Patient) -> None:
    patient.execute("create role seer login in role lakelog_service")
    name = patient.url.rpartition("/")[2]
    owner, patient.url = patient.url, patient.cluster.url(name, "seer")
    try:
        found = patient.finding("open transactions")
        assert (found["status"], found["measured"]) == ("skipped", "user seer may not see the sessions of others")
        patient.execute(found["remedy"][0]["text"])
        assert patient.finding("open transactions")["status"] == "ok"
    finally:
        patient.url = owner


def test_a_synchronous_standby_that_is_missing(patient: Patient) -> None:
    patient.execute("ALTER SYSTEM SET synchronous_standby_names = 'away'")
    patient.execute("SELECT pg_reload_conf()")
    eventually(lambda: patient.finding("standby")["status"] == "failed", what="the setting is read")
    # Cleared means here that commits no longer wait: the warning about a failover stays.
    _, output = patient.doctor()
    patient._follow(remedy_of(output, "standby", "catalog"))
    eventually(lambda: patient.finding("standby")["status"] == "warning", what="commits do not wait")


def test_a_standby_that_is_not_synchronous(patient: Patient) -> None:
    with Cluster(primary=patient.cluster, settings={"max_prepared_transactions": "5"}):
        eventually(lambda: "no standby is synchronous" in patient.finding("standby")["measured"], what="it streams")
        patient.treat("standby")
        patient.execute("ALTER SYSTEM RESET synchronous_standby_names")
        patient.execute("SELECT pg_reload_conf()")


def test_an_old_schema(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["lakelog.storage.postgres.migrate"]
    former, patient.url = patient.url, patient.cluster.create_database()
    try:
        assert "missing; this version needs migration" in patient.finding("schema")["measured"]
        all_of_them = module.migrations()
        with monkeypatch.context() as patched:
            patched.setattr(module, "migrations", lambda: all_of_them[:-1])
            asyncio.run(migrate(patient.url))
        assert f"at migration {all_of_them[-2][0]};" in patient.treat("schema")
    finally:
        patient.cluster.drop_database(patient.url)
        patient.url = former


def test_a_feature_level_that_can_be_raised(patient: Patient) -> None:
    patient.execute("update lakelog.installation set feature_level = 1")
    patient.execute(
        "insert into lakelog.server (server_id, address, seen_at, level) values ('s', 'old:1', clock_timestamp(), 1)"
    )
    assert "these servers do not: old:1 (level 1)" in patient.finding("feature level")["measured"]
    patient.execute("delete from lakelog.server")
    patient.treat("feature level")


def test_cells(patient: Patient) -> None:
    cell = patient.cluster.create_database()
    patient.options = ["--cell", f"eu={cell}"]
    try:
        assert patient.finding("schema", where="cell eu")["status"] == "failed"
        assert "not in the catalog: eu" in patient.treat("cells", where="installation")
        patient.options = []
        assert "in the catalog, but not configured: eu" in patient.finding("cells", where="installation")["measured"]
        patient.options = ["--cell", f"eu={patient.url}"]
        assert "belongs to another cell" in patient.finding("cells", where="installation")["measured"]
    finally:
        patient.options = []


def test_a_database_that_does_not_run(patient: Patient) -> None:
    patient.cluster.stop()
    found = patient.finding("connection")
    assert found["status"] == "failed" and "connection refused" in found["measured"]
    assert patient.finding("cells", where="installation")["status"] == "skipped"
    assert found["remedy"][0]["text"].startswith("Start PostgreSQL")
    patient.cluster.start()
    assert patient.finding("connection")["status"] == "ok"


def test_the_object_store(patient: Patient, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    assert patient.finding("object store", where="installation")["status"] == "skipped"
    folder.write_text("not a folder")
    options = ("--object-store", f"file://{folder}")
    assert "cannot be created" in patient.treat("object store", *options, where="installation")
    assert [each for each in folder.rglob("*") if each.is_file()] == []


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    if (id == CLOCK_REALTIME) at->tv_sec += 300;
    return result;
}
"""


def test_a_wrong_clock(patient: Patient, tmp_path: Path) -> None:
    """The clock of this machine is five minutes ahead, for the process of the command."""
    (tmp_path / "shim.c").write_text(SHIM)
    shim = str(tmp_path / "shim.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, str(tmp_path / "shim.c"), "-ldl"], check=True)
    command = [sys.executable, "-m", "lakelog", "doctor", "--database-url", patient.url]
    done = subprocess.run(command, env={**os.environ, "LD_PRELOAD": shim}, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "failed   clock: the database is 5 min behind this machine" in done.stdout
    assert "by NTP" in done.stdout
    assert patient.finding("clock")["status"] == "ok"


def test_a_server_tells_what_it_can() -> None:
    with ThreadServer() as server:
        result = CliRunner().invoke(app, ["doctor", "--url", server.url], prog_name="lakelog")
    assert result.exit_code == 0, result.output
    assert "ok       ready: ready" in result.stdout
    assert "skipped  databases: checks of PostgreSQL and of the object store need" in result.stdout
    result = CliRunner().invoke(app, ["doctor", "--url", "http://127.0.0.1:1"], prog_name="lakelog")
    assert result.exit_code == 4
    assert "cannot be reached" in result.stderr


def test_old_transaction_ids(patient: Patient) -> None:
    """The next transaction id is set to 1.5 billion, as after years of writes. The cluster is of no use afterwards."""
    patient.cluster.skip_transaction_ids(1_500_000_000)
    assert patient.finding("transaction ids")["status"] == "warning"
    assert "in database" in patient.treat("transaction ids")
