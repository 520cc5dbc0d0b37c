"""Servers whose databases are away when they start: PostgreSQL as a whole, or one cell of two."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from lakelog.storage.postgres import migrate
from tests.kit.fleet import LAKELOG
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor
from tests.kit.proxy import FaultProxy
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def get(port: int, path: str) -> tuple[int, Any]:
    """Return the status and the body; the status is 0 if nothing responds."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except (OSError, http.client.HTTPException):
        return 0, {"status": "no response"}


def post(port: int, path: str, body: object) -> int:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def events(process: Process) -> list[str]:
    return [json.loads(line)["event"] for line in process.log_text().splitlines() if line.startswith("{")]


def test_a_server_that_starts_before_postgresql_is_unready_and_then_serves(own_cluster: Cluster) -> None:
    url, port = own_cluster.create_database(), free_port()
    asyncio.run(migrate(url))
    own_cluster.stop()
    with Supervisor() as supervisor:
        server = supervisor.start([LAKELOG, "serve", "--no-auth", "--port", str(port), "--database-url", url])
        eventually(lambda: get(port, "/healthz")[0] == 200, within=60)
        status, body = get(port, "/readyz")
        assert (status, body["status"]) == (503, "starting")
        own_cluster.start()
        eventually(lambda: get(port, "/readyz")[0] == 200, within=60)
        assert events(server).count("database_awaited") == 1


def test_a_server_that_waited_in_vain_exits_with_the_reason(own_cluster: Cluster) -> None:
    url = own_cluster.create_database()
    own_cluster.stop()
    argv = [LAKELOG, "serve", "--no-auth", "--port", str(free_port()), "--database-url", url]
    with Supervisor() as supervisor:
        server = supervisor.start(argv, env={"LAKELOG_START_SECONDS": "1"})
        assert server.wait(timeout=60) == 4
        assert "Tried for 1 s" in server.log_text()


def test_one_cell_that_is_away_stops_only_its_partitions(cluster: Cluster, own_cluster: Cluster) -> None:
    url, cell_url, port = cluster.create_database(), own_cluster.create_database(), free_port()
    asyncio.run(migrate(url, {"east": cell_url}))
    argv = [LAKELOG, "serve", "--no-auth", "--port", str(port), "--database-url", url, "--cell", f"east={cell_url}"]
    try:
        with Supervisor() as supervisor:
            first = supervisor.start(argv, ready=f"http://127.0.0.1:{port}/readyz")
            assert post(port, "/v1/topics", {"name": "orders", "partitions": 2}) == 201
            first.kill9()
            own_cluster.stop()
            supervisor.start(argv, ready=f"http://127.0.0.1:{port}/readyz")
            status, body = get(port, "/readyz")
            assert (status, body["status"]) == (200, "degraded")
            assert "cell 1" in " ".join(body["warnings"])
            message = {"messages": [{"value": 1, "partition": 0}]}
            assert post(port, "/v1/topics/orders/messages", message) == 200
            assert post(port, "/v1/topics/orders/messages", {"messages": [{"value": 1, "partition": 1}]}) == 503
            own_cluster.start()
            eventually(lambda: get(port, "/readyz")[1]["status"] == "ready", within=60)
            assert post(port, "/v1/topics/orders/messages", {"messages": [{"value": 1, "partition": 1}]}) == 200
    finally:
        cluster.drop_database(url)


@pytest.mark.nightly
def test_a_server_starts_without_a_cell_that_does_not_respond(cluster: Cluster) -> None:
    url, cell_url, port = cluster.create_database(), cluster.create_database(), free_port()
    asyncio.run(migrate(url, {"east": cell_url}))
    try:
        with FaultProxy("127.0.0.1", cluster.port) as link, Supervisor() as supervisor:
            cell = f"east={cluster.url(cell_url.rpartition('/')[2], port=link.port)}"
            link.half_open()
            argv = [LAKELOG, "serve", "--no-auth", "--port", str(port), "--database-url", url, "--cell", cell]
            server = supervisor.start(argv)
            began = time.monotonic()
            eventually(lambda: get(port, "/readyz")[0] == 200, within=60)
            assert time.monotonic() - began < 20
            assert get(port, "/readyz")[1]["status"] == "degraded"
            link.pass_through()
            eventually(lambda: get(port, "/readyz")[1]["status"] == "ready", within=60)
            server.kill9()
    finally:
        cluster.drop_database(cell_url)
        cluster.drop_database(url)
