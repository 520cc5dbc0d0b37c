"""SIGTERM, several workers, and what prevents a server from starting: with real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import psutil
import pytest

from tests.integration.servers import TOKEN, Running, are_ready, running, workers_of
from tests.kit.ports import free_port
from tests.kit.waiting import eventually

POLL = "/v1/topics/orders/partitions/0/messages?offset=latest&wait_ms=30000"


def _create_topic(server: Running) -> None:
    with server.client() as client:
        assert client.post("/v1/topics", json={"name": "orders"}).status_code == 201


def _in_flight(server: Running) -> float:
    with server.client(None) as client:
        [line] = [
            line for line in client.get("/metrics").text.splitlines() if line.startswith("lakelog_http_in_flight ")
        ]
        return float(line.split()[-1])


def test_sigterm_lets_running_calls_finish() -> None:
    with running(drain_seconds=200) as server:
        _create_topic(server)
        replies: list[httpx.Response] = []

        def poll() -> None:
            with server.client() as client:
                replies.append(client.get(POLL))

        thread = threading.Thread(target=poll)
        thread.start()
        eventually(lambda: _in_flight(server) == 2, what="the poll is in flight")
        with server.client() as idle:
            assert idle.get("/readyz").status_code == 200
            os.kill(server.process.pid, signal.SIGTERM)
            thread.join(20)
            # The idle connection still gets one last response.
            ready = idle.get("/readyz")
        began = time.monotonic()
        assert server.process.wait(timeout=20) == 0
        assert time.monotonic() - began < 10
        assert "engine closed" in server.process.log_text()
    assert [(reply.status_code, reply.json()["messages"]) for reply in replies] == [(200, [])]
    assert replies[0].headers["connection"] == "close"
    assert (ready.status_code, ready.json()["status"], ready.headers["connection"]) == (503, "draining", "close")


def test_a_call_that_does_not_end_times_out() -> None:
    with running(drain_seconds=2) as server:
        head = (
            f"POST /v1/topics/orders/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
            f"content-type: application/json\r\ncontent-length: 100\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head.encode())
            eventually(lambda: _in_flight(server) == 2, what="the call is in flight")
            began = time.monotonic()
            os.kill(server.process.pid, signal.SIGTERM)
            assert server.process.wait(timeout=20) == 0
        assert time.monotonic() - began < 15
        assert "engine closed" in server.process.log_text()


def test_sigint_ends_at_once() -> None:
    with running() as server, server.client() as idle:
        assert idle.get("/healthz").status_code == 200
        began = time.monotonic()
        os.kill(server.process.pid, signal.SIGINT)
        assert server.process.wait(timeout=20) == 0
        assert time.monotonic() - began < 8


def test_workers_share_a_port_and_are_replaced() -> None:
    with running(workers=2, drain_seconds=30) as server:
        first = workers_of(server.process)
        assert len(first) == 2
        for _ in range(40):
            with server.client() as client:
                assert client.get("/healthz").status_code == 200
        first[0].kill()
        eventually(
            lambda: len(workers_of(server.process)) == 2 and workers_of(server.process) != first, what="a new worker"
        )
        # Connections that arrive before it listens wait for it, and are not refused.
        for _ in range(20):
            with server.client() as client:
                assert client.get("/healthz").status_code == 200
        # Without it, a slow worker could be stopped before it handles signals.
        eventually(lambda: are_ready(server.url), what="all workers are ready")
        workers = workers_of(server.process)
        assert server.process.terminate(within=40) == 0
        assert not any(worker.is_running() for worker in workers)
        log = server.process.log_text()
        assert log.count("engine closed") == 2
        assert log.count("server_started") == log.count("server_draining") == log.count("server_stopped") == 1
        assert "was killed by SIGKILL. It is started again in" in log and log.count("worker_started") == 1


@pytest.fixture(scope="module")
def pair() -> Iterator[Running]:
    with running(workers=2) as server:
        yield server


def test_metrics_are_those_of_all_workers(pair: Running) -> None:
    def counted() -> float:
        with pair.client(None) as client:
            lines = client.get("/metrics").text.splitlines()
        name = 'lakelog_http_requests_total{route="list_topics",status="200"}'
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    for _ in range(30):
        with pair.client() as client:
            assert client.get("/v1/topics").status_code == 200
    eventually(lambda: counted() == 30, what="all calls are counted")


def test_workers_die_with_their_parent() -> None:
    with running(workers=2) as server:
        workers = workers_of(server.process)
        os.kill(server.process.pid, signal.SIGKILL)
        eventually(lambda: not any(_alive(worker) for worker in workers), what="the workers are gone")
        server.process.wait()
        eventually(lambda: _is_free(server.port), what="the port is free")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _start(**settings: object) -> subprocess.CompletedProcess[str]:
    env = {f"LAKELOG_{name.upper()}": str(value) for name, value in settings.items()}
    return subprocess.run(
        [sys.executable, "-m", "tests.integration.memory_server"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"host": "0.0.0.0", "authenticate": "false", "port": 0}, "loopback only"),
        ({"test_weak": "fsync=off", "port": 0}, "fsync=off"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_dangerous_server_does_not_start(settings: dict[str, object], reason: str, workers: int) -> None:
    ended = _start(**settings, workers=workers)
    assert ended.returncode != 0
    assert reason in ended.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_a_port_in_use_is_reported(workers: int) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        ended = _start(port=port, workers=workers)
    assert ended.returncode != 0
    assert f"port {port}" in ended.stderr and "--port" in ended.stderr


def test_not_durable_is_allowed_and_said() -> None:
    with running(test_weak="fsync=off", allow_not_durable="true") as server, server.client(None) as client:
        assert client.get("/healthz").json()["warnings"][0].startswith("NOT DURABLE")
        assert "NOT DURABLE" in server.process.log_text()


def test_connections_are_spread_over_the_workers(pair: Running) -> None:
    clients = [pair.client() for _ in range(32)]
    try:
        for client in clients:
            client.get("/healthz")
        counts = Counter[int]()
        for worker in workers_of(pair.process):
            counts[worker.pid] = sum(
                connection.laddr.port == pair.port and connection.status == psutil.CONN_ESTABLISHED
                for connection in worker.net_connections()
            )
    finally:
        for client in clients:
            client.close()
    assert sum(counts.values()) == 32
    assert min(counts.values()) >= 4
