"""PgBouncer in session mode between the engine and PostgreSQL, with its default settings."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.engine import Engine
from lakelog.engine.leasing import watcher
from lakelog.model.lease import ConsumeRequest
from lakelog.model.message import Message
from lakelog.storage.postgres import migrate, open_stores
from lakelog.storage.postgres.connection import SETTINGS, Database
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster, unprivileged
from tests.kit.process import Command, Process
from tests.kit.waiting import eventually_async

_BINARY = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
pytestmark = pytest.mark.skipif(_BINARY is None, reason="pgbouncer is not installed (apt-get install pgbouncer)")

_CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={upstream}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = session
"""


@pytest.fixture
def bouncer(cluster: Cluster, tmp_path: Path) -> Iterator[int]:
    """Run PgBouncer in front of the cluster, and return its port."""
    port, user = free_port(), unprivileged()
    folder = cluster.folder / f"pgbouncer-{port}"
    folder.mkdir()
    file, users = folder / "pgbouncer.ini", folder / "users.txt"
    users.write_text('"postgres" ""\n')
    file.write_text(_CONFIGURATION.format(upstream=cluster.port, port=port, users=users))
    if user:
        for path in (folder, file, users):
            shutil.chown(path, user)
    command = Command(argv=[str(_BINARY), str(file)], ready=f"tcp://127.0.0.1:{port}", user=user, cwd=folder)
    process = Process(command, log_path=tmp_path / "pgbouncer.log")
    process.start()
    try:
        yield port
    finally:
        process.terminate()


async def test_a_server_behind_pgbouncer_publishes_hears_and_delivers(
    cluster: Cluster, database: str, bouncer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only an announcement can wake the consumer.
    monkeypatch.setattr(watcher, "WATCH_SECONDS", 60.0)
    url = database.replace(f":{cluster.port}/", f":{bouncer}/")
    await migrate(url)
    here, there = Engine(*await open_stores(url, {})), Engine(*await open_stores(url, {}))
    try:
        for engine in (here, there):
            await engine.start()
        await eventually_async(lambda: all(engine.cells[0].is_listening for engine in (here, there)))
        scope = await here.catalog.scope_create("shop", "test")
        await here.topics.create(scope, "orders", partitions=2)
        request = ConsumeRequest(topic="orders", group="billing", owner="ann", wait_ms=20_000, start_from="earliest")
        waiting = asyncio.create_task(there.leases.consume(scope, request))
        await asyncio.sleep(0.2)
        await here.publisher.messages(scope, "orders", [Message(value=b"x")])
        async with asyncio.timeout(15):
            assert (await waiting).leases
    finally:
        await here.close()
        await there.close()


async def test_sessions_behind_pgbouncer_have_the_settings_of_lakelog(
    cluster: Cluster, database: str, bouncer: int
) -> None:
    """PgBouncer refuses most settings in the first message of a connection, or ignores them."""
    await migrate(database)
    pool = await Database.open(database.replace(f":{cluster.port}/", f":{bouncer}/"), size=2)
    try:
        query = "select lower(name), setting from pg_settings where lower(name) = any ($1::text[])"
        found = dict(map(tuple, await pool.read(query, list(SETTINGS))))
        assert found["enable_seqscan"] == "off"
        assert found["plan_cache_mode"] == "force_generic_plan"
        assert found["statement_timeout"] == "20000"
        assert found["application_name"] == "lakelog"
        assert found["timezone"] == "UTC"
        assert set(found) == set(SETTINGS)
    finally:
        await pool.close()
