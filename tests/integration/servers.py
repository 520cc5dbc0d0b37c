"""Starts `memory_server` for tests that need real HTTP, real processes and real signals."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import psutil

from tests.kit.ports import free_port
from tests.kit.process import Process, Supervisor

TOKEN = "lkl_integration"
OTHER_TOKEN = "lkl_elsewhere"


@dataclass(frozen=True, kw_only=True)
class Running:
    url: str
    port: int
    process: Process

    def client(self, token: str | None = TOKEN) -> httpx.Client:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        # Without TLS no certificates are loaded, which would take most of a test's time.
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False, verify=False)


@contextmanager
def running(**settings: object) -> Iterator[Running]:
    """Start a server with these settings: `drain_seconds=5` is LAKELOG_DRAIN_SECONDS. All of its workers are ready."""
    port = free_port()
    given = {"port": port, "test_token": TOKEN, "test_other_token": OTHER_TOKEN, **settings}
    env = {f"LAKELOG_{name.upper()}": str(value) for name, value in given.items()}
    with Supervisor() as supervisor:
        url = f"http://127.0.0.1:{port}"
        argv = [sys.executable, "-m", "tests.integration.memory_server"]
        process = supervisor.start(argv, env=env, ready=lambda: are_ready(url), name="server")
        yield Running(url=url, port=port, process=process)


def are_ready(url: str) -> bool:
    """Return whether all workers are ready: enough connections that each of two workers answers one of them."""
    try:
        return all(httpx.get(f"{url}/readyz", trust_env=False, verify=False).status_code == 200 for _ in range(20))
    except httpx.TransportError:
        return False


def workers_of(server: Process) -> list[psutil.Process]:
    """Return the worker processes of a server that has several."""
    return [child for child in server.children() if _is_worker(child)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        # Just killed, and not yet noticed by its parent.
        return False
